import { fireEvent, render, screen, within } from "@testing-library/react";
import { expect, test } from "vitest";
import { SweepTable } from "./SweepTable";

const sweep = {
  chosen: { ROWS: 4 },
  configurations: [
    { values: { ROWS: 4 }, time_us: { large: 10, small: 1.5 }, rounds: 2 },
    { values: { ROWS: 1 }, time_us: { large: 15, small: 1 }, rounds: 1, unscaled: ["large"] },
    { values: { ROWS: 16 }, time_us: {}, rounds: 0, failure: "<b>wrong</b>" },
  ],
  seconds: 2.5,
  compile_s: 4.5,
  left_out: 3,
  not_compiled: 2,
  limit_s: 90,
  importance: {
    configurations: 2,
    sweeps: 1,
    unused: 1,
    tunables: [],
    unclear: "too few configurations to tell",
  },
  summary: "ROWS=4 best of 2 timed",
};

test("every configuration has its times, the chosen one is marked, and one that is out says why", () => {
  render(<SweepTable sweep={sweep} />);
  const [, chosen, slower, wrong] = screen.getAllByRole("row") as [HTMLElement, ...HTMLElement[]];
  expect(within(chosen as HTMLElement).getByText("chosen")).toBeVisible();
  expect(chosen).toHaveTextContent("ROWS=4");
  expect(slower).toHaveTextContent(/about 15/);
  expect(slower).not.toHaveTextContent(/about 1\D/);
  expect(within(slower as HTMLElement).queryByText("chosen")).toBeNull();
  expect(wrong).toHaveTextContent("<b>wrong</b>");
  expect(screen.getByRole("columnheader", { name: /Time, small/ })).toBeVisible();
  expect(screen.getByText(/3 were not timed, 2 of them not compiled/)).toHaveTextContent(
    "ROWS=4 best of 2 timed",
  );
  expect(screen.getByText(/for sweeps ended it/)).toBeVisible();
  expect(screen.getByText(/What mattered is not told/)).toHaveTextContent("too few configurations to tell");
});

test("the tunables are drawn by what they explain, beside what chance would", () => {
  const tunables = [
    { name: "BLOCK", values: 3, sweeps: 1, share: 0.8, by_chance: 0.25 },
    { name: "STAGES", values: 3, sweeps: 1, share: 0.1, by_chance: 0.25 },
  ];
  render(
    <SweepTable
      sweep={{ ...sweep, importance: { configurations: 9, sweeps: 1, unused: 0, tunables, unclear: null } }}
    />,
  );
  expect(screen.getByRole("img", { name: /BLOCK 80 %, STAGES 10 %/ })).toBeInTheDocument();
  const plot = screen.getByRole("application", { name: /What mattered/ });
  fireEvent.keyDown(plot, { key: "ArrowRight" });
  expect(plot).toHaveTextContent("BLOCK: 80 %");
  expect(plot).toHaveTextContent("25 % is expected if it did nothing");
});
