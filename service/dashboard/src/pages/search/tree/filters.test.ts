import { expect, it } from "vitest";
import { choicesOf, filtersOf, shownOf } from "./filters";
import { colorOf, kindOf } from "./kinds";
import { row, treeFrom } from "./testing";

const filters = (text: string) => filtersOf(new URLSearchParams(text));
const tree = treeFrom([
  row(0, null, { technique: null }),
  row(1, 0, { technique: "fusion", verification: "passed", score: 2.5 }),
  row(2, 1, { technique: "tiling", score: 0.8, round: 2 }),
  row(3, 1, { technique: "tiling", state: "closed", verdict: null, duplicate_of: 2, round: 2 }),
  row(4, 0, { technique: "tiling", verdict: "rejected" }),
  row(5, 0, { state: "coding", verdict: null }),
]);
const shown = (text: string) => {
  const found = shownOf(tree, filters(text));
  return [...found.tree.children].map(([id, ids]) => `${id}: ${ids.join(" ")}`);
};

it("folds duplicates away until they are asked for", () => {
  expect(shownOf(tree, filters(""))).toMatchObject({ matching: 4, folded: 1 });
  expect(shown("")).toEqual(["n0: n1 n4 n5", "n1: n2"]);
  expect(shownOf(tree, filters("duplicates=show")).tree).toBe(tree);
});

it("shows what is looked for and what leads to it", () => {
  expect(shown("standing=screened")).toEqual(["n0: n1", "n1: n2"]);
  expect(shown("standing=accepted")).toEqual(["n0: n1", "n1: n2"]);
  expect(shown("standing=verified")).toEqual(["n0: n1"]);
  expect(shown("standing=under way")).toEqual(["n0: n5"]);
  expect(shown("technique=tiling")).toEqual(["n0: n1 n4", "n1: n2"]);
  expect(shown("round=2")).toEqual(["n0: n1", "n1: n2"]);
  expect(shown("faster=1")).toEqual(["n0: n1"]);
  expect(shownOf(tree, filters("faster=1&technique=tiling")).matching).toBe(0);
});

it("takes nothing from an address that says nonsense", () =>
  expect(filters("standing=great&round=x&faster=-1&technique=&duplicates=yes")).toEqual({
    standing: null,
    technique: null,
    round: null,
    fasterThan: null,
    duplicates: false,
  }));

it("knows the techniques and rounds that there are", () =>
  expect(choicesOf(tree)).toEqual({ techniques: ["fusion", "tiling"], rounds: [1, 2] }));

it("colours by speed-up: what is slower is not green", () => {
  const of = (score: number) => colorOf(row(1, 0, { score }));
  expect([0.8, 0.996, 1, 1.3, 2, 50].map(of)).toEqual([
    "--slower",
    "--fast-1",
    "--fast-1",
    "--fast-2",
    "--fast-3",
    "--fast-3",
  ]);
  expect(kindOf(row(1, 0))).toBe("screened");
  expect(kindOf(row(1, 0, { verification: "passed" }))).toBe("verified");
});
