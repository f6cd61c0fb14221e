import { expect, it } from "vitest";
import type { ComparedSearch, TechniqueDocument } from "../../api/comparison";
import { axesOf, curvesOf, measureOf, measuresOf, techniqueBars } from "./curves";

const point = (
  candidates: number,
  score: number,
  cost_usd: number | null = candidates / 10,
  node: string | null = "nd",
) => ({
  candidates,
  cost_usd,
  elapsed_s: candidates * 10,
  score,
  verified: false,
  node_id: node,
  seq: node === null ? null : candidates,
});

const technique = (name: string, more: Partial<TechniqueDocument> = {}): TechniqueDocument => ({
  technique: name,
  candidates: 4,
  accepted: 2,
  improved: 1,
  best_score: 2,
  median_gain: 1.2,
  gain_range: [0.9, 1.5],
  tokens: 100,
  cost_usd: 0.5,
  judge_s: 3,
  ...more,
});

const search = (curve: ComparedSearch["curve"], techniques: TechniqueDocument[] = []) =>
  ({ search: { id: "sr", op_name: "gelu" }, curve, techniques }) as unknown as ComparedSearch;

it("draws every search on one pair of axes, each with its number at its end", () => {
  const { curves, xDomain, yDomain } = curvesOf(
    [search([point(1, 1.5), point(4, 2)]), search([point(2, 0.8)])],
    "candidates",
  );
  expect(xDomain).toEqual([0, 4]);
  expect(yDomain[1]).toBeCloseTo(2.2);
  expect(curves.map(({ dots }) => dots.map(({ label }) => label))).toEqual([[undefined, "1"], ["2"]]);
  expect(curves[0]?.tone).not.toBe(curves[1]?.tone);
  expect(curvesOf([search([point(1, 1.5)])], "time").xDomain).toEqual([0, 10]);
});

it("offers cost only where every price is known and something was paid", () => {
  expect(axesOf([search([point(1, 1.5)])])).toEqual(["candidates", "cost", "time"]);
  expect(axesOf([search([point(1, 1.5)]), search([point(1, 1.5, null)])])).toEqual(["candidates", "time"]);
  expect(axesOf([search([point(1, 1.5, 0)])])).toEqual(["candidates", "time"]);
});

it("measures techniques, and leaves out what is not known", () => {
  expect(measureOf(technique("a"), "tried", 16)).toBe(0.25);
  expect(measureOf(technique("a"), "success", 16)).toBe(0.5);
  expect(measureOf(technique("a"), "cost", 16)).toBe(0.25);
  expect(measureOf(technique("a"), "time", 16)).toBe(1.5);
  expect(measureOf(technique("a", { cost_usd: null }), "cost", 16)).toBeNull();
  const failed = technique("a", { accepted: 0, median_gain: null, gain_range: null });
  expect(measureOf(failed, "gain", 16)).toBeNull();
  expect(measureOf(failed, "time", 16)).toBeNull();
  expect(measuresOf([search([], [technique("a")])])).toContain("cost");
  expect(measuresOf([search([], [technique("a", { cost_usd: null })])])).not.toContain("cost");
});

it("gives each technique a row, and each search a lane of it; gains span their range", () => {
  const { rows, bars, kind, domain } = techniqueBars(
    [
      search([], [technique("a"), technique("b", { candidates: 9 })]),
      search([], [technique("a", { median_gain: 1.8, gain_range: [1.1, 3] })]),
    ],
    "gain",
  );
  expect(rows).toEqual(["b", "a"]);
  expect(bars.map(({ row, at, lane, from, value, to }) => [row, at, lane, from, value, to])).toEqual([
    ["a", 0, [0, 0.5], 0.9, 1.2, 1.5],
    ["b", 0, [0, 0.5], 0.9, 1.2, 1.5],
    ["a", 1, [0.5, 1], 1.1, 1.8, 3],
  ]);
  expect(kind).toBe("linear");
  expect(domain[1]).toBeCloseTo(3.15);
  const far = techniqueBars([search([], [technique("a", { gain_range: [0.1, 4] })])], "gain");
  expect(far.kind).toBe("log");
  const tried = techniqueBars([search([], [technique("a"), technique("b", { candidates: 12 })])], "tried");
  expect(tried.bars.map(({ value }) => value)).toEqual([0.25, 0.75]);
});
