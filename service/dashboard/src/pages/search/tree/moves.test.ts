import { expect, it } from "vitest";
import { findNodes, neighbour } from "./find";
import { layout } from "./layout";
import { step } from "./moves";
import { row, small, treeFrom } from "./testing";

const arranged = layout(small(), new Set());

it.each([
  ["n0", "child", "n2"],
  ["n1", "parent", "n0"],
  ["n1", "next", "n2"],
  ["n2", "previous", "n1"],
  ["n5", "next", "n6"],
  ["n0", "parent", null],
  ["n4", "child", null],
  ["n4", "previous", null],
  ["gone", "next", "n0"],
] as const)("from %s the %s is %s", (from, direction, to) => {
  expect(step(arranged, from, direction)).toBe(to);
});

it("goes nowhere below a collapsed node", () => {
  expect(step(layout(small(), new Set(["n1"])), "n1", "child")).toBeNull();
});

const tree = treeFrom([
  row(0, null, { title: null }),
  row(1, 0, { title: "Tile the rows", technique: "loop_tiling", score: 1.5 }),
  row(2, 0, { title: "Fuse loads", technique: "memory_access", verdict: "rejected", gate: "screen" }),
  row(12, 0, { title: "Tile again", technique: "loop_tiling", mark: "pinned" }),
]);

it.each([
  ["tile", ["n1", "n12"]],
  ["TILE rows", ["n1"]],
  ["loop tiling", ["n1", "n12"]],
  ["memory_access", ["n2"]],
  ["#12", ["n12"]],
  ["#1", ["n1"]],
  ["rejected", ["n2"]],
  ["at screen", ["n2"]],
  ["pinned", ["n12"]],
  ["reference", ["n0"]],
  ["nothing such", []],
  ["  ", []],
])("finds %o in %o", (text, ids) => {
  expect(findNodes(tree, text)).toEqual(ids);
});

it("steps through what was found, around the end", () => {
  const found = ["a", "b", "c"];
  expect(neighbour(found, null, 1)).toBe("a");
  expect(neighbour(found, "elsewhere", -1)).toBe("c");
  expect(neighbour(found, "c", 1)).toBe("a");
  expect(neighbour(found, "a", -1)).toBe("c");
  expect(neighbour([], "a", 1)).toBeNull();
});
