import { QueryClient, QueryClientProvider } from "@tanstack/react-query";
import { render, screen } from "@testing-library/react";
import { MemoryRouter } from "react-router";
import { expect, it } from "vitest";
import type { AskDocument } from "../../api/queries";
import { Answer } from "./Answer";
import { Outcome } from "./Outcome";

const NODE = { id: "nd_1", seq: 0, state: "verified", verdict: "accepted", gate: "verify", reason: null };

/** What the page says of an answer, in the order in which it says it. */
function said(kind: string, state: string, ideas: AskDocument["ideas"] = null): string[] {
  const step = { kind: "ideate", state, error: null };
  const ask = {
    id: "ak_1",
    search_id: "sr_1",
    node_id: "nd_1",
    kind,
    state: "answered",
    step,
    node: NODE,
    ideas,
  };
  render(<Outcome ask={ask as unknown as AskDocument} />, { wrapper: MemoryRouter });
  const [list] = screen.getAllByRole("list");
  return Array.from(list?.children ?? [], (line) => line.textContent ?? "");
}

const PROBLEM = "There is no JSON list of ideas in the reply, which begins: 'hello, no json'";
const UNREAD = { wanted: 2, taken: [], left_out: [PROBLEM] };

it.each([
  ["pending", "The search says what was wrong with it, and asks again."],
  ["waiting", "The same was asked again, with what was wrong."],
  ["succeeded", "It was asked again, and a later answer was used."],
  ["failed", "The step ended without an answer it could use."],
])("says of ideas that could not be read why none is used, while the step is %s", (state, then) => {
  const [, unused, after] = said("ideate", state, UNREAD);
  expect(unused).toBe(`not used The answer could not be used: none of it became a node.${PROBLEM}`);
  expect(after).toContain(then);
  expect(screen.queryByText(/in the tree|read and used/)).toBeNull();
  expect(screen.getByRole("link", { name: "Open asks of the search" })).toHaveAttribute(
    "href",
    "/searches/sr_1?tab=asks",
  );
});

it("says how many of the ideas became nodes, and each that was left out with why", () => {
  const [, read, ideas] = said("ideate", "succeeded", {
    wanted: 4,
    taken: ["One"],
    left_out: ["'x' has no mechanism", "'One' repeats the title of an idea before it"],
  });
  expect(read).toContain("It was read and used.");
  expect(ideas).toContain("1 of 4 ideas became a node:");
  expect(screen.getAllByRole("listitem").map((line) => line.textContent)).toEqual(
    expect.arrayContaining(["One", "'x' has no mechanism", "'One' repeats the title of an idea before it"]),
  );
});

it("does not say that ideas became nodes before the step has ended", () => {
  const [, , ideas] = said("ideate", "pending", { wanted: 2, taken: ["One", "Two"], left_out: [] });
  expect(ideas).toContain("2 of 2 ideas will become nodes:");
  expect(ideas).not.toContain("Left out");
});

it("says that code was asked for again", () => {
  const [, step] = said("code", "waiting");
  expect(step).toContain("The answer could not be used, and the same was asked again.");
});

it.each([
  ["answered", { wanted: 1, taken: ["One"], left_out: [] }, true],
  ["answered", UNREAD, false],
  ["withdrawn", UNREAD, false],
])("says of an %s ask whether its answer counts", (state, ideas, counts) => {
  const ask = {
    ...{ id: "ak_1", kind: "ideate", state, ideas, reply: "hello, no json", replaced_by: null },
    ...{ answered_by: "someone", answered_at: 0 },
  };
  render(
    <QueryClientProvider client={new QueryClient()}>
      <MemoryRouter>
        <Answer ask={ask as unknown as AskDocument} />
      </MemoryRouter>
    </QueryClientProvider>,
  );
  expect(screen.queryByText(/That answer counts/) !== null).toBe(counts);
  expect(screen.queryByText(/It is not used/) !== null).toBe(state === "withdrawn");
});
