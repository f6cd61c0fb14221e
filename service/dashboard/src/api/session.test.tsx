import { QueryClient, QueryClientProvider } from "@tanstack/react-query";
import { act, renderHook } from "@testing-library/react";
import { afterEach, beforeEach, expect, it, vi } from "vitest";
import { onLoginRequired } from "./client";
import { useSession } from "./session";

beforeEach(() => void vi.useFakeTimers());
afterEach(() => {
  vi.useRealTimers();
  vi.unstubAllGlobals();
});

it("tells that the session ended on a page that asks for nothing", async () => {
  let held = true;
  vi.stubGlobal("fetch", async () =>
    Response.json({ keys_required: true, name: held ? "x" : null, csrf_token: held ? "token" : null }),
  );
  const tell = vi.fn();
  const forget = onLoginRequired(tell);
  const client = new QueryClient();
  renderHook(() => useSession(), {
    wrapper: ({ children }) => <QueryClientProvider client={client}>{children}</QueryClientProvider>,
  });
  await act(() => vi.advanceTimersByTimeAsync(60_000));
  expect(tell).not.toHaveBeenCalled();
  held = false;
  await act(() => vi.advanceTimersByTimeAsync(300_000));
  forget();
  expect(tell.mock.calls).toEqual([[true]]);
});
