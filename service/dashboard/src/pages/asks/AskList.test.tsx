import { QueryClient, QueryClientProvider } from "@tanstack/react-query";
import { render, screen, waitFor } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { MemoryRouter, useLocation } from "react-router";
import { beforeEach, expect, it, vi } from "vitest";
import AskList from "./AskList";

const ask = {
  id: "ak_1",
  search_id: "sr_1",
  node_id: "nd_1",
  kind: "code",
  state: "open",
  issue: 0,
  op_name: "softmax",
  target: "cpu:x86_64",
  seq: 1,
  title: "one pass",
  created_at: 0,
  expires_at: null,
  answered_at: null,
  answered_by: null,
};
let asked: string[] = [];

beforeEach(() => {
  asked = [];
  vi.stubGlobal("matchMedia", () => ({ matches: false, addEventListener() {}, removeEventListener() {} }));
  vi.stubGlobal("fetch", async (request: Request) => {
    const query = new URL(request.url).searchParams;
    asked.push(`${query.get("state")} ${query.get("search_id")}`);
    const rows = [ask, { ...ask, id: "ak_2", search_id: "sr_2" }];
    const only = query.get("search_id");
    return Response.json({
      items: only === "sr_2" ? rows.slice(1) : only ? rows.slice(0, 1) : rows,
      next: null,
    });
  });
});

function Address() {
  return <output>{useLocation().search}</output>;
}

function show(address: string, searchId?: string) {
  render(
    <QueryClientProvider client={new QueryClient()}>
      <MemoryRouter initialEntries={[address]}>
        <AskList {...(searchId && { searchId })} />
        <Address />
      </MemoryRouter>
    </QueryClientProvider>,
  );
  return screen.findByRole("table", { name: "Asks" });
}

it("asks for what the address says", async () => {
  await show("/asks?state=answered&search=sr_9");
  expect(asked).toEqual(["answered sr_9", "answered null"]);
});

it("keeps state and search in the address", async () => {
  await show("/asks");
  await userEvent.selectOptions(screen.getByRole("combobox", { name: "Search" }), "sr_1");
  await userEvent.selectOptions(screen.getByRole("combobox", { name: "State" }), "In any state");
  await waitFor(() => expect(asked).toEqual(["open null", "open sr_1", "null sr_1", "null null"]));
  expect(screen.getByRole("status").textContent).toBe("?search=sr_1&state=all");
});

it("offers every search while one is chosen", async () => {
  await show("/asks?search=sr_2");
  const choice = screen.getByRole("combobox", { name: "Search" });
  await waitFor(() =>
    expect([...choice.querySelectorAll("option")].map((option) => option.textContent)).toContain(
      "softmax on cpu:x86_64, sr_1",
    ),
  );
});

it("stays with the search whose page it is on", async () => {
  await show("/?tab=asks&search=sr_9", "sr_1");
  expect(asked).toEqual(["open sr_1"]);
  expect(screen.queryByRole("combobox", { name: "Search" })).toBeNull();
});
