import { expect, it } from "vitest";
import { small } from "../tree/testing";
import { linesOf, motionOf, windowOf } from "./lines";

const open = linesOf(small(), new Set());
const ids = (lines: typeof open) => lines.map((line) => line.row.id);

it("lists the tree from top to bottom with level and place", () => {
  expect(ids(open)).toEqual(["n0", "n1", "n4", "n5", "n2", "n3", "n6"]);
  expect(open.map((line) => line.level)).toEqual([1, 2, 3, 3, 2, 2, 3]);
  expect(open[3]).toMatchObject({ position: 2, siblings: 2, expanded: null, parent: 1 });
  expect(open[0]).toMatchObject({ position: 1, siblings: 1, expanded: true, parent: null });
});

it("leaves out what is below a closed line", () => {
  const lines = linesOf(small(), new Set(["n1"]));
  expect(ids(lines)).toEqual(["n0", "n1", "n2", "n3", "n6"]);
  expect(lines[1]?.expanded).toBe(false);
  expect(lines[4]?.parent).toBe(3);
});

it.each([
  [0, "ArrowDown", { to: 1 }],
  [6, "ArrowDown", { to: 6 }],
  [0, "ArrowUp", { to: 0 }],
  [1, "ArrowRight", { to: 2 }],
  [2, "ArrowRight", null],
  [2, "ArrowLeft", { to: 1 }],
  [1, "ArrowLeft", { close: "n1" }],
  [0, "End", { to: 6 }],
  [6, "Home", { to: 0 }],
  [1, "PageDown", { to: 4 }],
  [1, "x", null],
  [99, "ArrowDown", null],
] as const)("at line %i %s gives %o", (at, key, motion) => {
  expect(motionOf(open, at, key, 3)).toEqual(motion);
});

it("opens a closed line before it goes into it, and leaves it upwards", () => {
  const lines = linesOf(small(), new Set(["n1"]));
  expect(motionOf(lines, 1, "ArrowRight", 3)).toEqual({ open: "n1" });
  expect(motionOf(lines, 1, "ArrowLeft", 3)).toEqual({ to: 0 });
});

it("draws only the lines in view", () => {
  const [first, last] = windowOf(5000, 36 * 1000, 600, 36);
  expect(first).toBeLessThanOrEqual(1000);
  expect(last).toBeGreaterThanOrEqual(1017);
  expect(last - first).toBeLessThan(60);
  expect(windowOf(3, 0, 600, 36)).toEqual([0, 3]);
});
