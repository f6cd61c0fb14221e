import { render, screen } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { useState } from "react";
import { expect, it } from "vitest";
import { FilterBar } from "./FilterBar";
import { filtersOf, type Shown } from "./filters";
import type { SearchTree } from "./rows";

const TREE = { rows: new Map() } as unknown as SearchTree;
const SHOWN = { folded: 0 } as unknown as Shown;

function Bar() {
  const [params, setParams] = useState(new URLSearchParams());
  const set = (changes: Record<string, string | null>) =>
    setParams((before) => {
      const after = new URLSearchParams(before);
      for (const [name, value] of Object.entries(changes))
        value === null ? after.delete(name) : after.set(name, value);
      return after;
    });
  return (
    <>
      <FilterBar tree={TREE} shown={SHOWN} filters={filtersOf(params)} set={set} />
      <output aria-label="address">{params.toString()}</output>
    </>
  );
}

it("takes a ratio below one as it is typed, and shows none once it is taken away", async () => {
  const user = userEvent.setup();
  render(<Bar />);
  const input = screen.getByRole("spinbutton", { name: /faster than/i });
  await user.type(input, "0.85");
  expect(input).toHaveValue(0.85);
  expect(screen.getByRole("status", { name: "address" })).toHaveTextContent("faster=0.85");
  await user.click(screen.getByRole("button", { name: /^show all$/i }));
  expect(input).toHaveValue(null);
});
