import { QueryClient, QueryClientProvider } from "@tanstack/react-query";
import { act, renderHook, waitFor } from "@testing-library/react";
import type { ReactNode } from "react";
import { afterEach, expect, test, vi } from "vitest";
import { useMattered } from "./mattered";

afterEach(() => {
  vi.unstubAllGlobals();
  vi.useRealTimers();
});

function look(answers: () => Promise<Response>) {
  const asked = vi.fn(answers);
  vi.stubGlobal("fetch", asked);
  const client = new QueryClient({ defaultOptions: { queries: { retry: false, staleTime: 1e9 } } });
  const wrapper = ({ children }: { children: ReactNode }) => (
    <QueryClientProvider client={client}>{children}</QueryClientProvider>
  );
  const seen = renderHook(
    ({ id, ended, at }: { id: string; ended: boolean; at: number }) => useMattered(id, ended, at),
    { wrapper, initialProps: { id: "sr_1", ended: false, at: 7 } },
  );
  return { asked, ...seen };
}

test("what is shown of one search is not shown of another", async () => {
  const answers = [Promise.resolve(Response.json({ as_of: 7 })), new Promise<Response>(() => {})];
  const never = new Promise<Response>(() => {});
  const { result, rerender } = look(() => answers.shift() ?? never);
  await waitFor(() => expect(result.current.data?.as_of).toBe(7));
  rerender({ id: "sr_1", ended: true, at: 7 });
  expect(result.current.data?.as_of).toBe(7);
  rerender({ id: "sr_2", ended: false, at: 7 });
  expect(result.current.data).toBeUndefined();
});

test("it is asked for again only where the search has changed since the answer", async () => {
  vi.useFakeTimers();
  const pass = (ms: number) => act(() => vi.advanceTimersByTimeAsync(ms));
  let at = 7;
  const { asked, rerender } = look(() => Promise.resolve(Response.json({ as_of: at })));
  await pass(60_000);
  expect(asked).toHaveBeenCalledTimes(1);
  rerender({ id: "sr_1", ended: false, at: 8 });
  await pass(16_000);
  expect(asked, "the answer was of before the change").toHaveBeenCalledTimes(2);
  at = 8;
  await pass(60_000);
  expect(asked).toHaveBeenCalledTimes(3);
  rerender({ id: "sr_1", ended: true, at: 9 });
  await pass(60_000);
  expect(asked, "once more when it has ended").toHaveBeenCalledTimes(4);
});
