import { QueryClient, QueryClientProvider } from "@tanstack/react-query";
import { act, renderHook } from "@testing-library/react";
import { afterEach, beforeEach, expect, it, vi } from "vitest";
import { answer, api } from "../api/client";
import { useServiceDown } from "./useService";

beforeEach(() => void vi.useFakeTimers());
afterEach(() => {
  vi.useRealTimers();
  vi.unstubAllGlobals();
});

it("says that the service is away, asks until it answers, and has all read anew", async () => {
  let away = true;
  const body = JSON.stringify({ status: "ok", version: "1" });
  vi.stubGlobal("fetch", async () => {
    if (away) throw new TypeError("refused");
    return new Response(body, { headers: { "Content-Type": "application/json" } });
  });
  const client = new QueryClient();
  const invalidate = vi.spyOn(client, "invalidateQueries");
  const onBack = vi.fn();
  const { result } = renderHook(() => useServiceDown(onBack), {
    wrapper: ({ children }) => <QueryClientProvider client={client}>{children}</QueryClientProvider>,
  });
  expect(result.current).toBeNull();
  await act(async () => {
    await answer(api.GET("/healthz")).catch(() => null);
  });
  expect(result.current).not.toBeNull();
  await act(async () => {
    await vi.advanceTimersByTimeAsync(3000);
  });
  expect(result.current).not.toBeNull();
  away = false;
  await act(async () => {
    await vi.advanceTimersByTimeAsync(3000);
  });
  expect(result.current).toBeNull();
  expect(onBack).toHaveBeenCalledOnce();
  expect(invalidate).toHaveBeenCalledOnce();
});
