import { QueryClient, QueryClientProvider, useQuery } from "@tanstack/react-query";
import { act, render, screen, waitFor } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { createBrowserRouter, RouterProvider } from "react-router";
import { afterEach, beforeEach, expect, it, vi } from "vitest";
import { answer, api, setCsrfToken } from "../api/client";
import { useLive } from "../api/live";
import { ToastProvider } from "../design";
import LoginPage from "../pages/login";
import { Shell } from "./Shell";

const PAGE = "/searches/sr_1?tab=list";
const ENDED = "The session has ended: its key was revoked or it expired. Sign in again.";
let held = true;
let refuseStream = () => {};

/** A stream that nothing comes from, and that the test has the service refuse. */
class FakeSource {
  readyState = 1;
  addEventListener(type: string, listener: () => void) {
    if (type !== "error") return;
    refuseStream = () => {
      this.readyState = 2;
      listener();
    };
  }
  close() {}
}

function session() {
  return { keys_required: true, name: held ? "a person" : null, csrf_token: held ? "token" : null };
}

function serve(request: Request): Response {
  const { pathname } = new URL(request.url);
  if (pathname === "/healthz") return Response.json({ status: "ok", version: "1" });
  if (pathname === "/v1/session") {
    if (request.method === "POST") held = true;
    return Response.json(session());
  }
  return held
    ? Response.json({ items: [], next: null })
    : Response.json({ title: "No key" }, { status: 401 });
}

beforeEach(() => {
  held = true;
  // As after a sign-out: no session ended before the test.
  setCsrfToken("before");
  setCsrfToken(null);
  vi.stubGlobal("matchMedia", () => ({ matches: false, addEventListener() {}, removeEventListener() {} }));
  vi.stubGlobal("scrollTo", () => {});
  vi.stubGlobal("EventSource", FakeSource);
  vi.stubGlobal("fetch", async (request: Request) => serve(request));
});
afterEach(() => vi.unstubAllGlobals());

function Running() {
  const state = useLive("sr_1", false);
  const { refetch } = useQuery({
    queryKey: ["list"],
    queryFn: () => answer(api.GET("/v1/searches")),
    retry: false,
  });
  return (
    <>
      <p>The stream is {state}</p>
      <button type="button" onClick={() => void refetch()}>
        Read again
      </button>
    </>
  );
}

function open() {
  history.pushState(null, "", PAGE);
  const router = createBrowserRouter([
    {
      Component: Shell,
      children: [
        { path: "searches/:id", Component: Running },
        { path: "login", Component: LoginPage },
      ],
    },
  ]);
  render(
    <QueryClientProvider client={new QueryClient()}>
      <ToastProvider>
        <RouterProvider router={router} />
      </ToastProvider>
    </QueryClientProvider>,
  );
}

async function openSignedIn() {
  open();
  await screen.findByRole("button", { name: "Sign out a person" });
  await screen.findByText(/The stream is/);
}

const readAgain = () => userEvent.click(screen.getByRole("button", { name: "Read again" }));

it("ends the session of a page whose stream is refused, says why, and returns to the page", async () => {
  await openSignedIn();
  held = false;
  act(() => refuseStream());
  expect(await screen.findByText(ENDED)).toBeVisible();
  expect(screen.queryByText(/The stream is/)).toBeNull();
  await waitFor(() => expect(screen.queryByRole("button", { name: /Sign out/ })).toBeNull());
  await userEvent.type(screen.getByLabelText("API key"), "wsk_1");
  await userEvent.click(screen.getByRole("button", { name: "Sign in" }));
  await screen.findByText(/The stream is/);
  expect(location.pathname + location.search).toBe(PAGE);
});

it("stays on the page whose stream is refused while the session holds", async () => {
  await openSignedIn();
  const asked = vi.fn();
  vi.stubGlobal("fetch", async (request: Request) => {
    asked(new URL(request.url).pathname);
    return serve(request);
  });
  act(() => refuseStream());
  await waitFor(() => expect(asked).toHaveBeenCalledWith("/v1/session"));
  expect(await screen.findByText("The stream is reconnecting")).toBeVisible();
});

it("says why the login comes after any request that is refused in a session", async () => {
  await openSignedIn();
  held = false;
  await readAgain();
  expect(await screen.findByText(ENDED)).toBeVisible();
  expect(new URLSearchParams(location.search).get("next")).toBe(PAGE);
});

it("says nothing of a session where none was begun", async () => {
  held = false;
  open();
  expect(await screen.findByLabelText("API key")).toBeVisible();
  expect(screen.queryByText(ENDED)).toBeNull();
});
