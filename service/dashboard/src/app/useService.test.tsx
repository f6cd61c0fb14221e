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

function watch() {
  const client = new QueryClient();
  return renderHook(() => useServiceDown(() => {}), {
    wrapper: ({ children }) => <QueryClientProvider client={client}>{children}</QueryClientProvider>,
  }).result;
}

it("notices on a page that asks nothing itself, while the page is in view", async () => {
  const fetched = vi.fn(async () => {
    throw new TypeError("refused");
  });
  vi.stubGlobal("fetch", fetched);
  const hidden = vi.spyOn(document, "hidden", "get").mockReturnValue(true);
  const since = watch();
  await act(async () => {
    await vi.advanceTimersByTimeAsync(30_000);
  });
  expect(fetched).not.toHaveBeenCalled();
  expect(since.current).toBeNull();
  hidden.mockReturnValue(false);
  await act(async () => {
    await vi.advanceTimersByTimeAsync(10_000);
  });
  expect(since.current).not.toBeNull();
});

it("does not ask where the page hears of the service anyway", async () => {
  const asked: string[] = [];
  vi.stubGlobal("fetch", async (request: Request) => {
    asked.push(new URL(request.url).pathname);
    return Response.json({ items: [] });
  });
  watch();
  for (let time = 0; time < 4; time++)
    await act(async () => {
      await answer(api.GET("/v1/workers"));
      await vi.advanceTimersByTimeAsync(5000);
    });
  expect(asked).toEqual(Array(4).fill("/v1/workers"));
});
