import { QueryClient, QueryClientProvider } from "@tanstack/react-query";
import { act, render, screen } from "@testing-library/react";
import { createMemoryRouter, RouterProvider } from "react-router";
import { afterEach, beforeEach, expect, it, vi } from "vitest";
import { ErrorPage, isUnread } from "./ErrorPage";

const UNREAD = new TypeError(
  "Failed to fetch dynamically imported module: http://127.0.0.1/assets/ListTab.js",
);

beforeEach(() => void vi.useFakeTimers());
afterEach(() => {
  vi.useRealTimers();
  vi.unstubAllGlobals();
  sessionStorage.clear();
});

const Shown = () => <p>shown</p>;

async function failing(error: Error) {
  vi.spyOn(console, "error").mockImplementation(() => undefined);
  const loader = () => {
    throw error;
  };
  const router = createMemoryRouter([{ path: "/", loader, Component: Shown, ErrorBoundary: ErrorPage }]);
  render(
    <QueryClientProvider client={new QueryClient()}>
      <RouterProvider router={router} />
    </QueryClientProvider>,
  );
  await act(async () => void (await vi.advanceTimersByTimeAsync(0)));
}

it("asks for a page that could not be read until the service answers, and opens it then, once", async () => {
  let away = true;
  const reload = vi.fn();
  vi.stubGlobal("location", { ...location, reload });
  vi.stubGlobal("fetch", async () => {
    if (away) throw new TypeError("refused");
    return new Response("{}", { headers: { "Content-Type": "application/json" } });
  });
  await failing(UNREAD);
  expect(screen.getByText("The service did not give this page")).toBeDefined();
  await act(async () => void (await vi.advanceTimersByTimeAsync(3500)));
  expect(reload).not.toHaveBeenCalled();
  away = false;
  await act(async () => void (await vi.advanceTimersByTimeAsync(3000)));
  expect(reload).toHaveBeenCalled();
  await failing(UNREAD); // as after a reload that did not help
  expect(screen.getByRole("button", { name: "Load again" })).toBeDefined();
});

it("tells a page that was not read from one that failed", async () => {
  expect(isUnread(UNREAD)).toBe(true);
  expect(isUnread(new Error("Unable to preload CSS for /assets/ListTools.css"))).toBe(true);
  expect(isUnread(new TypeError("error loading dynamically imported module"))).toBe(true); // Firefox
  expect(isUnread(new TypeError("Importing a module script failed."))).toBe(true); // Safari
  expect(isUnread(new Error("rows is undefined"))).toBe(false);
  await failing(new Error("rows is undefined"));
  expect(screen.getByRole("button", { name: "Load again" })).toBeDefined();
});
