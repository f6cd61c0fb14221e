import { expect, test } from "vitest";
import type { TimelineAttempt } from "../../../api/progress";
import { screenedLead } from "./BestPlot";
import { gateBars, inWords } from "./gates";
import { axesOf, type BestPoint, bestSeries, type JudgedPoint } from "./series";
import { busyShare, timeline, within, zoom } from "./timeline";

function judged(candidates: number, score: number | null, over: Partial<JudgedPoint> = {}): JudgedPoint {
  return {
    at: 1000 + candidates,
    elapsed_s: candidates * 10,
    candidates,
    cost_usd: null,
    node_id: `nd_${candidates}`,
    seq: candidates,
    level: "screen",
    verdict: score === null ? "rejected" : "accepted",
    gate: "screen",
    score,
    technique: null,
    ...over,
  };
}

function best(candidates: number, score: number, over: Partial<BestPoint> = {}): BestPoint {
  const { at, elapsed_s, node_id, seq } = judged(candidates, score);
  return {
    at,
    elapsed_s,
    candidates,
    cost_usd: null,
    score,
    ci95: null,
    limit_fraction: null,
    node_id,
    seq,
    level: "screen",
    ...over,
  };
}

test("the best so far is held until the last verdict", () => {
  const series = bestSeries(
    {
      best: [best(1, 0.9), best(3, 1.5, { ci95: [1.4, 1.6] })],
      judged: [judged(1, 0.9), judged(3, 1.5), judged(8, null)],
    },
    "candidates",
  );
  expect(series.steps).toEqual([
    { x: 1, y: 0.9, low: null, high: null },
    { x: 3, y: 1.5, low: 1.4, high: 1.6 },
    { x: 8, y: 1.5, low: 1.4, high: 1.6 },
  ]);
  expect(series.xDomain).toEqual([0, 8]);
  expect(series.yKind).toBe("linear");
  expect(series.yDomain[0]).toBe(0);
});

test("what was screened and what was verified look different, and the verified speed-up is the one that stands", () => {
  const screened = best(3, 1.5);
  const verified = best(4, 1.4, { node_id: screened.node_id, seq: 3, level: "verify" });
  const { champions, steps } = bestSeries({ best: [screened, verified], judged: [] }, "candidates");
  expect(champions.map(({ shape }) => shape)).toEqual(["ring", "diamond"]);
  expect(steps.at(-1)?.y).toBe(1.4);
});

test("a verdict without a time stands at the foot as a cross, a verified one is filled", () => {
  const { dots, yDomain } = bestSeries(
    { best: [], judged: [judged(1, null), judged(2, 1.2), judged(3, 1.2, { level: "verify" })] },
    "time",
  );
  expect(dots.map(({ shape }) => shape)).toEqual(["cross", "ring", "circle"]);
  expect(dots[0]).toMatchObject({ x: 10, y: yDomain[0], tone: "bad" });
});

test("speed-ups far apart are drawn on a logarithmic axis, whose foot is below all of them", () => {
  const { yKind, yDomain } = bestSeries(
    { best: [best(1, 4)], judged: [judged(1, 0.02), judged(2, 4)] },
    "candidates",
  );
  expect(yKind).toBe("log");
  expect(yDomain[0]).toBeGreaterThan(0);
  expect(yDomain[0]).toBeLessThan(0.02);
});

test("champions that stand close are not all named, but the latest is", () => {
  const { champions } = bestSeries(
    { best: [best(1, 1), best(98, 1.1), best(100, 1.2)], judged: [] },
    "candidates",
  );
  expect(champions.map(({ label }) => label)).toEqual(["#1", undefined, "#100"]);
});

test("cost is an axis only where it is known, and what has no cost is left out of it", () => {
  const points = { best: [], judged: [judged(1, 1)] };
  expect(axesOf(points)).toEqual(["candidates", "time"]);
  const priced = { best: [], judged: [judged(1, 1), judged(2, 1, { cost_usd: 0.5 })] };
  expect(axesOf(priced)).toContain("cost");
  expect(bestSeries(priced, "cost").dots.map(({ x }) => x)).toEqual([0.5]);
});

test("an empty progress has a plot all the same", () => {
  const series = bestSeries({ best: [], judged: [] }, "candidates");
  expect(series.steps).toEqual([]);
  expect(series.xDomain).toEqual([0, 1]);
  expect(series.yKind).toBe("linear");
  expect(series.yDomain.every(Number.isFinite)).toBe(true);
});

function attempt(id: string, over: Partial<TimelineAttempt>): TimelineAttempt {
  return {
    id,
    node_id: "nd_1",
    seq: 1,
    kind: "code",
    ordinal: 0,
    state: "succeeded",
    owner: "model-1",
    tries: 1,
    error: null,
    created_at: 100,
    started_at: 100,
    finished_at: 110,
    ...over,
  };
}

const ATTEMPTS = [
  attempt("a", {}),
  attempt("b", { started_at: 105, finished_at: 120 }),
  attempt("c", { started_at: 112, finished_at: 118, state: "failed" }),
  attempt("d", { owner: "judge-1", kind: "judge", started_at: 130, finished_at: null, state: "running" }),
  attempt("e", { owner: null, started_at: null, finished_at: null, state: "pending" }),
];

test("what a worker does at once stands in lanes, what failed and what runs is marked", () => {
  const { workers, bars, queued, span } = timeline(ATTEMPTS, 150);
  expect(workers).toEqual(["model-1", "judge-1"]);
  expect(bars.map(({ key, from, to, lane }) => [key, from, to, lane])).toEqual([
    ["a", 0, 10, [0, 0.5]],
    ["b", 5, 20, [0.5, 1]],
    ["c", 12, 18, [0, 0.5]],
    ["d", 30, 50, [0, 1]],
  ]);
  expect(bars.map(({ hatched }) => hatched)).toEqual([false, false, true, true]);
  expect(bars[2]?.tone).toBe("bad");
  expect([queued, span]).toEqual([1, 50]);
});

test("a line that ends above the verified best says why", () => {
  const verified = best(1, 1.34, { level: "verify", seq: 3 });
  const screened = best(2, 1.73, { level: "screen", seq: 6 });
  expect(screenedLead([verified])).toBeNull();
  expect(screenedLead([screened])).toBeNull();
  expect(screenedLead([screened, verified])).toBeNull();
  expect(screenedLead([verified, screened])).toContain("#6 was screened at 1.73x and is not verified");
  expect(screenedLead([verified, screened])).toContain("the verified one: #3, 1.34x");
});

test("a worker has one row, whichever of its processes took a step", () => {
  const owner = (process: string) => ({ owner: `model@host:8080:${process}` });
  const attempts = [attempt("a", owner("31:0a1b2c3d4e5f")), attempt("b", owner("32:ffeeddccbbaa"))];
  expect(timeline(attempts, 150).workers).toEqual(["model@host:8080"]);
});

test("a worker's time is counted once where its steps overlap", () => {
  const { bars } = timeline(ATTEMPTS, 150);
  expect(busyShare(bars, "model-1", [0, 40])).toBeCloseTo(0.5);
  expect(busyShare(bars, "judge-1", [40, 50])).toBeCloseTo(1);
  expect(within(bars, [25, 28])).toEqual([]);
});

test("a zoom stays within the whole and never closes", () => {
  expect(zoom(null, 50)).toEqual([0, 50]);
  expect(zoom([-5, 20], 50)).toEqual([0, 20]);
  expect(zoom([49.9, 200], 50)).toEqual([49, 50]);
  const [from, to] = zoom([10, 10], 50);
  expect(to - from).toBeGreaterThanOrEqual(1);
});

test("verdicts of a gate stand one after another in its row", () => {
  const gates = [
    { gate: "compile", verdict: "rejected", count: 3 },
    { gate: "time", verdict: "accepted", count: 4 },
    { gate: "time", verdict: "quarantined", count: 1 },
  ];
  const { rows, bars, most } = gateBars(gates);
  expect(rows).toEqual(["compile", "time"]);
  expect(bars.map(({ from, to }) => [from, to])).toEqual([
    [0, 3],
    [0, 4],
    [4, 5],
  ]);
  expect(most).toBe(5);
  expect(inWords(gates)).toContain("3 rejected at compile");
});
