import { QueryClient, QueryClientProvider } from "@tanstack/react-query";
import { render, screen } from "@testing-library/react";
import { MemoryRouter } from "react-router";
import { beforeEach, expect, it, vi } from "vitest";
import { DownSince } from "../../app/useService";
import SystemPage from ".";
import { RECONCILER, SYSTEM } from "./fixtures";

let broken = false;

beforeEach(() => {
  broken = false;
  vi.stubGlobal("matchMedia", () => ({ matches: false, addEventListener() {}, removeEventListener() {} }));
  vi.stubGlobal("fetch", async ({ url }: Request) => {
    if (broken) return Response.json({ title: "The server failed", status: 500 }, { status: 500 });
    if (url.endsWith("/v1/system")) return Response.json({ ...SYSTEM, queues: [], workers_alive: 1 });
    return Response.json({ items: url.endsWith("/v1/workers") ? [RECONCILER] : [], next: null });
  });
});

function page(client: QueryClient, down: number | null) {
  return (
    <QueryClientProvider client={client}>
      <MemoryRouter>
        <DownSince value={down}>
          <SystemPage />
        </DownSince>
      </MemoryRouter>
    </QueryClientProvider>
  );
}

async function expectPast() {
  expect(await screen.findByText(/^All was well when this was last read/)).toBeVisible();
  expect(screen.getAllByText("answered, last known")).toHaveLength(2);
  expect(screen.getByText("Workers alive, last known")).toBeVisible();
  expect(screen.queryByText(/All is well/)).toBeNull();
  expect(screen.queryByText("answers")).toBeNull();
  expect(screen.queryByText("read anew every few seconds")).toBeNull();
}

it("says of a service that does not answer what was last known, and nothing of now", async () => {
  const client = new QueryClient();
  const { rerender } = render(page(client, null));
  expect(await screen.findByText(/^All is well/)).toBeVisible();
  expect(screen.getAllByText("answers")).toHaveLength(2);
  rerender(page(client, 1));
  await expectPast();
  rerender(page(client, null));
  expect(screen.getByText(/^All is well/)).toBeVisible();
});

it("says the same where the service answers, but not how the house is", async () => {
  const client = new QueryClient({ defaultOptions: { queries: { retry: false } } });
  render(page(client, null));
  expect(await screen.findByText(/^All is well/)).toBeVisible();
  broken = true;
  void client.invalidateQueries();
  await expectPast();
});
