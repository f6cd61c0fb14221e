import { expect, it } from "vitest";
import { detailAt, sizing } from "./detail";
import { rankOf } from "./kinds";
import { row } from "./testing";

it("shows more the nearer it is", () => {
  const steps = [0.2, 3, 10, 18, 28, 40].map((height) => detailAt({ row: height, column: height * 7 + 60 }));
  const shown = steps.map(
    (detail) =>
      Number(detail.curves) +
      Number(detail.glyphs) +
      Number(detail.titles) +
      Number(detail.techniques) +
      Number(detail.scores),
  );
  expect(shown).toEqual([...shown].sort((a, b) => a - b));
  expect(shown[0]).toBe(0);
  expect(shown.at(-1)).toBe(5);
  expect(steps[0]?.grain).toBeGreaterThan(0);
  expect(steps.at(-1)?.grain).toBe(0);
});

it("writes no titles into columns that have no room for them", () => {
  expect(detailAt({ row: 40, column: 60 })).toMatchObject({ titles: false, techniques: false });
});

it("sizes nodes by speed-up, in area, and failed ones small", () => {
  const radius = sizing(4);
  const at = (score: number) => radius(row(1, 0, { score }), { scale: 1 });
  expect(at(4)).toBeGreaterThan(at(2));
  expect(at(2)).toBeGreaterThan(at(1));
  expect(at(4)).toBe(at(40));
  expect(at(4) - at(2)).toBeLessThan(at(2) - at(0));
  expect(radius(row(1, 0, { verdict: "rejected", score: 9 }), { scale: 1 })).toBeLessThan(at(1));
  expect(radius(row(1, 0, { score: 1 }), { scale: 0.001 })).toBeGreaterThan(1);
});

it("ranks what succeeded before what failed", () => {
  expect(rankOf(row(1, 0))).toBeGreaterThan(rankOf(row(1, 0, { verdict: "rejected" })));
  expect(rankOf(row(0, null))).toBeGreaterThan(rankOf(row(1, 0)));
});
