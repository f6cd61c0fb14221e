import { render, screen, within } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { expect, it, vi } from "vitest";
import { type Column, Table } from "./Table";

interface Row {
  name: string;
  score: number | null;
}

const ROWS: Row[] = [
  { name: "beta", score: 2 },
  { name: "alpha", score: null },
  { name: "gamma", score: 10 },
];
const COLUMNS: Column<Row>[] = [
  { key: "name", header: "Name", sortBy: (row) => row.name, cell: (row) => row.name },
  { key: "score", header: "Score", numeric: true, sortBy: (row) => row.score, cell: (row) => row.score },
  { key: "note", header: "Note", cell: () => "n" },
];

const names = () =>
  screen
    .getAllByRole("row")
    .slice(1)
    .map((row) => within(row).getAllByRole("cell")[0]?.textContent);

it("sorts by a header, words from A, numbers from the largest, missing values last either way", async () => {
  const user = userEvent.setup();
  render(<Table caption="Rows" columns={COLUMNS} rows={ROWS} rowKey={(row) => row.name} />);
  expect(names()).toEqual(["beta", "alpha", "gamma"]);
  await user.click(screen.getByRole("button", { name: "Name" }));
  expect(names()).toEqual(["alpha", "beta", "gamma"]);
  expect(screen.getByRole("columnheader", { name: "Name" })).toHaveAttribute("aria-sort", "ascending");
  await user.click(screen.getByRole("button", { name: "Score" }));
  expect(names()).toEqual(["gamma", "beta", "alpha"]);
  await user.click(screen.getByRole("button", { name: "Score" }));
  expect(names()).toEqual(["beta", "gamma", "alpha"]);
  expect(screen.queryByRole("button", { name: "Note" })).toBeNull();
});

it("leaves the sort to the caller who asks for it", async () => {
  const onSort = vi.fn();
  const user = userEvent.setup();
  render(
    <Table
      caption="Rows"
      columns={COLUMNS}
      rows={ROWS}
      rowKey={(row) => row.name}
      sort={null}
      onSort={onSort}
    />,
  );
  await user.click(screen.getByRole("button", { name: "Score" }));
  expect(onSort).toHaveBeenCalledWith({ key: "score", descending: true });
  expect(names()).toEqual(["beta", "alpha", "gamma"]);
});
