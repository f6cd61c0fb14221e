import { act, render, screen } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { useState } from "react";
import { expect, it } from "vitest";
import { FilterBar } from "./FilterBar";
import { filtersOf, type Shown } from "./filters";
import type { SearchTree } from "./rows";

const TREE = { rows: new Map() } as unknown as SearchTree;
const SHOWN = { folded: 0 } as unknown as Shown;

type Changes = Record<string, string | null>;

/** The bar over an address that follows when `wait` runs what it is given. */
function Bar({ wait }: { wait: (follow: () => void) => void }) {
  const [params, setParams] = useState(new URLSearchParams());
  const set = (changes: Changes) => {
    const kept = Object.entries(changes).filter((change): change is [string, string] => change[1] !== null);
    wait(() => setParams(new URLSearchParams(kept)));
  };
  return <FilterBar tree={TREE} shown={SHOWN} filters={filtersOf(params)} set={set} />;
}

it("keeps a ratio as it is typed until the address has followed, and shows none once it is taken away", async () => {
  const user = userEvent.setup();
  const waiting: (() => void)[] = [];
  const follow = () => {
    for (const change of waiting.splice(0)) act(change);
  };
  render(<Bar wait={(change) => waiting.push(change)} />);
  const input = screen.getByRole("spinbutton", { name: /faster than/i });
  await user.type(input, "0.85");
  expect(input).toHaveValue(0.85);
  follow();
  expect(input).toHaveValue(0.85);
  await user.click(screen.getByRole("button", { name: "Show all" }));
  follow();
  expect(input).toHaveValue(null);
});
