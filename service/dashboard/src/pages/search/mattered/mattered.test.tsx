import { fireEvent, render, screen, within } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import type { ReactNode } from "react";
import { MemoryRouter, useLocation } from "react-router";
import { expect, test } from "vitest";
import type { SweptCandidate } from "../../../api/mattered";
import { PairPlot } from "./PairPlot";
import { ParallelPlot } from "./ParallelPlot";
import { SlicePlots } from "./SlicePlots";
import { cellsOf, setsOf, shiftOf, stepsOf, summarise } from "./swept";

function candidate(seq: number, configurations: SweptCandidate["configurations"]): SweptCandidate {
  const chosen = configurations[0]?.values ?? {};
  return { node_id: `nd_${seq}`, seq, title: `Idea ${seq}`, score: 1, chosen, configurations, out: 0 };
}

const FIRST = candidate(1, [
  { values: { STAGES: 1, BLOCK: 64 }, ratio: 1 },
  { values: { STAGES: 2, BLOCK: 64 }, ratio: 2 },
  { values: { STAGES: 1, BLOCK: 128 }, ratio: 4 },
]);
const SECOND = candidate(2, [{ values: { BLOCK: 128, STAGES: 1 }, ratio: 1 }]);
const OTHER = candidate(3, [{ values: { ROWS: 4 }, ratio: 1 }]);
const [SET, ROWS] = setsOf([OTHER, FIRST, SECOND], ["BLOCK"]);
const shown = SET?.configurations ?? [];
const names = SET?.names ?? [];
const steps = stepsOf(shown.map(({ ratio }) => ratio));

function Address() {
  return <output>{useLocation().search}</output>;
}

function draw(children: ReactNode) {
  return render(
    <MemoryRouter>
      {children}
      <Address />
    </MemoryRouter>,
  );
}

test("candidates with the same tunables are one set, the largest first, its names by importance", () => {
  expect(names).toEqual(["BLOCK", "STAGES"]);
  expect(SET?.candidates.map(({ seq }) => seq)).toEqual([1, 2]);
  expect(shown).toHaveLength(4);
  expect(ROWS?.names).toEqual(["ROWS"]);
  expect(setsOf([], [])).toEqual([]);
});

test("a value has the geometric mean and the best of its configurations", () => {
  const [small, large] = summarise(shown, "BLOCK");
  expect(small).toMatchObject({ value: 64, count: 2 });
  expect(small?.mean).toBeCloseTo(Math.SQRT2);
  expect(large).toMatchObject({ value: 128, count: 2 });
  expect(large?.mean).toBeCloseTo(2);
  expect(large?.best.candidate.seq).toBe(2);
});

test("pairs that were not timed have no cell", () => {
  const cells = cellsOf(shown, "BLOCK", "STAGES");
  expect(cells.map(({ x, y, count }) => [x, y, count])).toEqual([
    ["64", "1", 1],
    ["64", "2", 1],
    ["128", "1", 2],
  ]);
});

test("steps are equal factors from the chosen to the slowest", () => {
  const { of, steps: found } = stepsOf([1, 32]);
  expect(found.map(({ from }) => Math.round(from))).toEqual([1, 2, 4, 8, 16]);
  expect([0.9, 1, 1.9, 2.1, 31, 32].map(of)).toEqual(["step1", "step1", "step1", "step2", "step5", "step5"]);
  expect(stepsOf([]).of(1)).toBe("step1");
  expect(stepsOf([1, 1.001]).steps).toHaveLength(1);
});

test("dots of a value stand apart within their column", () => {
  const shifts = Array.from({ length: 50 }, (_, at) => shiftOf(at));
  expect(new Set(shifts.map((shift) => shift.toFixed(3))).size).toBe(50);
  expect(Math.max(...shifts.map(Math.abs))).toBeLessThanOrEqual(0.4);
});

test("a slice says what each value came to, and Enter opens the candidate of its best", () => {
  draw(<SlicePlots names={names} configurations={shown} steps={steps} />);
  const plot = screen.getByRole("application", { name: /Slice of BLOCK/ });
  fireEvent.keyDown(plot, { key: "End" });
  expect(plot).toHaveTextContent("BLOCK=128");
  expect(plot).toHaveTextContent("2 configurations, mean 2.00x");
  expect(plot).toHaveTextContent("best 1.00x: #2 with BLOCK=128, STAGES=1");
  fireEvent.keyDown(plot, { key: "Enter" });
  expect(screen.getByText(/node=nd_2/)).toBeInTheDocument();
  expect(screen.getByRole("img", { name: /Slice of STAGES.*1: 3 configurations/ })).toBeInTheDocument();
});

test("a value that is chosen on an axis leaves the configurations with it, until all are asked for", async () => {
  const { container } = draw(<ParallelPlot names={names} configurations={shown} steps={steps} />);
  const figure = screen.getByRole("figure", { name: "Parallel coordinates" });
  const faint = () => container.querySelectorAll("path[data-faint]").length;
  const rows = () => within(within(figure).getByRole("table")).getAllByRole("row").length - 1;
  await userEvent.click(within(figure).getByText("As a table"));
  expect([faint(), rows()]).toEqual([0, 4]);
  const plot = within(figure).getByRole("application");
  fireEvent.keyDown(plot, { key: "Home" });
  expect(plot).toHaveTextContent("BLOCK=128");
  fireEvent.keyDown(plot, { key: "Enter" });
  expect([faint(), rows()]).toEqual([1, 2]);
  await userEvent.click(within(figure).getByRole("button", { name: "BLOCK=128: show all" }));
  expect([faint(), rows()]).toEqual([0, 4]);
});

test("a tunable may be called Time, and a configuration be faster than the chosen one", () => {
  const timed = setsOf(
    [
      candidate(1, [
        { values: { Time: 1, B: 2 }, ratio: 1 },
        { values: { Time: 2, B: 2 }, ratio: 0.5 },
        { values: { Time: 1, B: 4 }, ratio: 2 },
      ]),
    ],
    ["Time"],
  )[0];
  const { container } = draw(
    <ParallelPlot names={["Time", "B"]} configurations={timed?.configurations ?? []} steps={steps} />,
  );
  const labels = [...container.querySelectorAll("svg text")].map(({ textContent }) => textContent);
  expect(labels.filter((label) => label === "Time")).toHaveLength(2);
  expect(labels).toEqual(expect.arrayContaining(["0.50x", "1.00x", "2.00x"]));
});

test("a pair's cells hold mean or best, and the two selects never name the same tunable", async () => {
  draw(<PairPlot names={names} configurations={shown} />);
  const cells = () =>
    within(screen.getByRole("img", { name: /Heat map of two tunables/ })).queryAllByText(/^[0-9.]+x$/);
  expect(cells().map((cell) => cell.textContent)).toEqual(["1.00x", "2.00x", "2.00x"]);
  await userEvent.click(screen.getByRole("button", { name: "Best" }));
  expect(cells().map((cell) => cell.textContent)).toEqual(["1.00x", "2.00x", "1.00x"]);
  await userEvent.selectOptions(screen.getByRole("combobox", { name: "Across" }), "STAGES");
  expect(screen.getByRole("combobox", { name: "Down" })).toHaveValue("BLOCK");
  const plot = screen.getByRole("application", { name: /Heat map of two tunables/ });
  fireEvent.keyDown(plot, { key: "Home" });
  expect(plot).toHaveTextContent("STAGES=1, BLOCK=128");
});
