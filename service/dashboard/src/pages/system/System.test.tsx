import { QueryClient, QueryClientProvider } from "@tanstack/react-query";
import { render, screen } from "@testing-library/react";
import { MemoryRouter } from "react-router";
import { beforeEach, expect, it, vi } from "vitest";
import { DownSince } from "../../app/useService";
import SystemPage from ".";

const SYSTEM = {
  version: "1.0",
  as_of: 0,
  keys_required: false,
  database: "sqlite",
  checks: [
    { name: "database", ok: true, detail: "" },
    { name: "broker", ok: true, detail: "" },
  ],
  queues: [],
  devices: [],
  workers_alive: 1,
  searches_by_state: {},
  asks_open: 0,
  kernels: 0,
  quotas: [],
  versions: {},
};
const RECONCILER = {
  name: "reconciler@a",
  role: "reconciler",
  target: null,
  host: "a",
  device: null,
  compiles: {},
  version: "1.0",
  alive: true,
  state: "idle",
  running: 0,
  steps: [],
  draining_since: null,
  facts: {},
  started_at: 0,
  seen_at: 0,
};

let broken = false;

beforeEach(() => {
  broken = false;
  vi.stubGlobal("matchMedia", () => ({ matches: false, addEventListener() {}, removeEventListener() {} }));
  vi.stubGlobal("fetch", async ({ url }: Request) => {
    if (broken) return Response.json({ title: "The server failed", status: 500 }, { status: 500 });
    if (url.endsWith("/v1/system")) return Response.json(SYSTEM);
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
