import { describe, expect, it } from "vitest";
import type { FailureDocument, Roofline, WorkloadReport } from "../../../api/node";
import { reasons } from "./allowed";
import { apart, excess, failureInWords, limits, shareOfLimit, shown } from "./failure";
import { drawing, marks, peaksOf } from "./roofline";
import { fastestBaseline, isDuplicate, sentence } from "./sentence";
import { comparison, exchangeUs, isShort, tick, timeDomain } from "./timing";
import { inOrder, worstFamily } from "./workloads";

const node = {
  seq: 4,
  state: "judged",
  verdict: "accepted",
  gate: "time",
  reason: null,
  score: 1.592,
  ci95: [1.25, 1.92],
  limit_fraction: 0.61,
  verification: "passed",
  mark: null,
  repairs: 0,
};

const wrong: FailureDocument = {
  kind: "wrong_value",
  message: "workload decode: y[3, 5] is 0.31, expected 0.52 within 0.001; 12 of 4096 elements are wrong",
  workload: "decode",
  family: "shifted",
  tensor: "y",
  index: [3, 5],
  expected: 0.5234567,
  found: 0.31,
  limit: 0.001,
  wrong_elements: 12,
  elements: 4096,
};

function workload(id: string, role: string, times: Record<string, number>): WorkloadReport {
  return {
    id,
    role,
    axes: null,
    error: {},
    families: [],
    weight: 1,
    not_timed: {},
    repeatable: null,
    kernels: [],
    roofline: null,
    timings: Object.entries(times).map(([contender, time_us]) => ({
      contender,
      time_us,
      ci95: null,
      samples: [],
      speedup: null,
      speedup_ci95: null,
    })),
  };
}

describe("a failure in words", () => {
  it("names the element, what was expected and found, and how many are wrong", () => {
    expect(failureInWords(wrong)).toBe(
      "y[3, 5] on workload decode (inputs: shifted) is 0.31 where 0.5235 is expected, within 0.001; " +
        "12 of 4,096 elements are wrong",
    );
  });

  it("says what JSON cannot hold, and leaves other kinds to the judge's words", () => {
    expect(failureInWords({ ...wrong, kind: "non_finite", found: "nan", limit: null })).toContain(
      "is nan where",
    );
    expect(failureInWords({ kind: "not_written", message: "m", tensor: "y", index: [0] })).toBe(
      "y[0] was not written",
    );
    expect(failureInWords({ kind: "compile", message: "expected ';'" })).toBe("expected ';'");
  });

  it("names the element of a counterexample, whose inputs are listed elsewhere", () => {
    const told = failureInWords({
      ...wrong,
      kind: "counterexample",
      family: null,
      description: "x: 0 everywhere",
    });
    expect(told).toContain("y[3, 5] on workload decode is 0.31 where 0.5235 is expected");
    expect(told).not.toContain("everywhere");
  });

  it("counts how far off it is in limits, where that is a number", () => {
    expect(excess(wrong)).toBeCloseTo(213.46, 1);
    expect(excess({ ...wrong, found: "inf" })).toBe(Number.POSITIVE_INFINITY);
    expect(excess({ ...wrong, found: "nan" })).toBeNull();
    expect(excess({ ...wrong, limit: 0 })).toBeNull();
  });

  it("shows two numbers so that they differ where they do", () => {
    expect(apart(1.8051231, 1.8051238)).toEqual(["1.805123", "1.805124"]);
    expect(apart(5.381e-8, 5.384e-8)).toEqual(["5.381e-8", "5.384e-8"]);
    expect(apart(1.5, 1.5)).toEqual(["1.5", "1.5"]);
    expect(apart("nan", 0.25)).toEqual(["nan", "0.25"]);
    const failure = {
      kind: "wrong_value",
      tensor: "y",
      index: [1],
      found: 1.80512,
      expected: 1.80531,
      limit: 1e-6,
    };
    expect(failureInWords(failure as FailureDocument)).toContain("y[1] is 1.8051 where 1.8053 is expected");
  });

  it("shows figures briefly and exactly", () => {
    expect([0, 3, 0.1234567, 5.383e-8, 1e-7, 123456.789, "nan", null, [1, 2]].map(shown)).toEqual([
      "0",
      "3",
      "0.1235",
      "5.38e-8",
      "1e-7",
      "123500",
      "nan",
      "–",
      "[1,2]",
    ]);
  });

  it("takes an error as a share of its limit only where there is one", () => {
    expect(shareOfLimit(5e-8, 1e-7)).toBe(0.5);
    expect(shareOfLimit(5e-8, null)).toBeNull();
    expect(shareOfLimit("nan", 1e-7)).toBeNull();
    expect(shareOfLimit("inf", 1e-7)).toBe(Number.POSITIVE_INFINITY);
  });
});

describe("the sentence of a verdict", () => {
  const bench = [
    workload("a", "bench", { candidate: 5, eager: 9, compile: 7 }),
    workload("b", "bench", { candidate: 5, eager: 9, compile: 8 }),
    workload("c", "test", { candidate: 5, eager: 1 }),
  ];

  it("says how much faster than what, with interval and share of the limit", () => {
    expect(sentence(node, { failure: null, workloads: bench })).toBe(
      "Accepted: 1.59x [1.25, 1.92] as fast as torch.compile, at 61 % of the physical limit. It was verified in full.",
    );
  });

  it("does not call a difference what the interval does not show", () => {
    const told = sentence({ ...node, score: 1.1, ci95: [0.9, 1.3], verification: "none" }, null);
    expect(told).toContain("not shown to differ in speed from the fastest baseline, 1.10x [0.90, 1.30]");
    expect(told).toContain("not verified in full");
    expect(sentence({ ...node, score: 0.8, ci95: [0.7, 0.9] }, null)).toContain("slower than the fastest");
  });

  it("names the baseline only where it is the same on every bench workload", () => {
    expect(fastestBaseline(bench)).toBe("torch.compile");
    expect(fastestBaseline([...bench, workload("d", "bench", { candidate: 5, eager: 6, compile: 7 })])).toBe(
      "the fastest baseline",
    );
  });

  it("gives gate and worst element of a rejection, and the reason where the report is not there yet", () => {
    const rejected = { ...node, verdict: "rejected", gate: "screen", score: null, reason: "wrong values" };
    expect(sentence(rejected, { failure: wrong, workloads: [] })).toMatch(
      /^Rejected at the screen gate: y\[3, 5\] on workload decode.*are wrong\.$/,
    );
    expect(sentence(rejected, null)).toBe("Rejected at the screen gate: wrong values.");
  });

  it("tells quarantine and ambiguity from rejection", () => {
    expect(sentence({ ...node, verdict: "quarantined", gate: "physics", reason: "too fast" }, null)).toBe(
      "Quarantined at the physics gate: its values are right, but it is too fast to be believed. too fast.",
    );
    expect(sentence({ ...node, verdict: "ambiguous", reason: "busy" }, null)).toContain("could not tell");
  });

  it("knows the ways in which a node repeats another", () => {
    const closed = { ...node, state: "closed", verdict: null };
    const told = (reason: string) => sentence({ ...closed, reason }, null);
    expect(told("duplicate of node #3")).toContain("the same code as node #3");
    expect(told("duplicate of node #3 (same binary)")).toContain("the same binary as node #3");
    expect(told("the repair changed nothing: duplicate of node #4")).toContain("the repair changed nothing");
    expect(told("the same idea as node #2")).toContain("no code was written");
    expect(told("the pool has no reply")).toBe("Closed: the pool has no reply.");
    expect(isDuplicate({ state: "closed", reason: "duplicate of node #3" })).toBe(true);
    expect(isDuplicate({ state: "closed", reason: "the pool has no reply" })).toBe(false);
  });

  it("says what a node without a verdict waits for", () => {
    expect(sentence({ ...node, verdict: null, state: "coding", repairs: 2 }, null)).toBe(
      "A model writes the code, repair 2.",
    );
    expect(sentence({ ...node, verdict: null, state: "planned", mark: "banned" }, null)).toContain("Banned");
    expect(sentence({ ...node, seq: 0, verdict: null }, null)).toContain("baselines are not measured yet");
  });
});

describe("a roofline", () => {
  const peaks = peaksOf({
    peaks: {
      bandwidth_gbs: { "67108864": 36, "33554432": 50, "1024": "?" },
      gflops: { float32: 100, float64: 40 },
    },
  });
  const roofline: Roofline = {
    bytes: 1e6,
    operations: 4e5,
    intensity: 0.4,
    arithmetic: "float32",
    bandwidth_gbs: 36,
    gflops: 100,
    limit_us: 27.8,
    limit_by: "bytes",
    points: [
      { kind: "node", contender: "candidate", node_id: "n", seq: 4, time_us: 40, gbs: 25, gflops: 10 },
      { kind: "baseline", contender: "eager", time_us: 80, gbs: 12.5, gflops: 5 },
    ],
  };

  it("reads the measured peaks and leaves out what is no number", () => {
    expect(peaks.bandwidth.map(({ bytes }) => bytes)).toEqual([33554432, 67108864]);
    expect(peaks.arithmetic.map(({ name }) => name)).toEqual(["float32", "float64"]);
    expect(peaksOf({})).toEqual({ bandwidth: [], arithmetic: [] });
  });

  it("bends where bandwidth gives way to arithmetic, and keeps every point and both roofs in view", () => {
    const drawn = drawing(roofline, peaks);
    expect(drawn?.ridge).toBeCloseTo(100 / 36);
    const [bound] = drawn?.ceilings.filter(({ binds, key }) => binds && key.startsWith("bandwidth")) ?? [];
    expect(bound?.points[1]).toEqual({ x: 100 / 36, y: 100 });
    expect(bound?.label).toBe("36.0 GB/s at 64 MiB");
    const [low, high] = drawn?.y ?? [0, 0];
    expect(low).toBeLessThan(5);
    expect(high).toBeGreaterThan(100);
    expect(drawn?.x[0]).toBeLessThan(0.4);
    expect(drawn?.x[1]).toBeGreaterThan(100 / 36);
  });

  it("puts the contenders at the workload's intensity, the node above the others", () => {
    const found = marks(roofline, (point) => point.contender);
    expect(found.map(({ label }) => label)).toEqual(["eager", "candidate"]);
    expect(found.every(({ x }) => x === 0.4)).toBe(true);
  });

  it("is not drawn where operations are unknown or nothing was measured", () => {
    expect(drawing({ ...roofline, operations: null, intensity: null }, peaks)).toBeNull();
    expect(drawing({ ...roofline, bandwidth_gbs: null, gflops: null }, peaks)).toBeNull();
    expect(marks({ ...roofline, intensity: null }, () => "")).toEqual([]);
  });
});

describe("times", () => {
  const timing = {
    contender: "eager",
    time_us: 9,
    ci95: null,
    samples: [],
    speedup: 1.5,
    speedup_ci95: [1.2, 1.8],
  };

  it("says what a ratio shows, and that an interval around 1 shows nothing", () => {
    expect(comparison(timing)).toBe("1.50x [1.20, 1.80] as fast as PyTorch eager: shown to be faster.");
    expect(comparison({ ...timing, speedup: 1.1, speedup_ci95: [0.9, 1.3] })).toContain(
      "no difference is shown",
    );
    expect(comparison({ ...timing, speedup: 0.5, speedup_ci95: [0.4, 0.6] })).toContain("shown to be slower");
    expect(comparison({ ...timing, speedup_ci95: null })).toContain("no interval is known");
  });

  it("warns where the way to the candidate and back is a large part of its time", () => {
    const short = workload("a", "bench", { candidate: 60, eager: 90 });
    expect(isShort(short, 19)).toBe(true);
    expect(isShort(short, 5)).toBe(false);
    expect(isShort(short, exchangeUs({}))).toBe(false);
  });

  it("takes a logarithmic axis where times are far apart, and keeps every block in view", () => {
    const near = [{ ...timing, samples: [8, 12] }];
    expect(timeDomain(near)).toEqual({ kind: "linear", domain: [0, 12 * 1.05] });
    const far = timeDomain([...near, { ...timing, time_us: 900 }]);
    expect(far.kind).toBe("log");
    expect(far.domain[0]).toBeLessThan(8);
    expect(far.domain[1]).toBeGreaterThan(900);
    expect(timeDomain([]).domain).toEqual([0, 1]);
  });

  it("leaves zeros out at an axis", () => {
    expect(["1.00 ms", "0 µs", "1.50 ms", "30.0 µs", "100 µs"].map(tick)).toEqual([
      "1 ms",
      "0 µs",
      "1.5 ms",
      "30 µs",
      "100 µs",
    ]);
  });
});

describe("workloads", () => {
  it("puts the one that failed first, then what is timed", () => {
    const rows = ["x", "y", "z"].map((id) => workload(id, id === "x" ? "test" : "bench", {}));
    const order = (failed?: string) =>
      inOrder({ workloads: rows, failure: failed ? { ...wrong, workload: failed } : null }).map(
        ({ id }) => id,
      );
    expect(order()).toEqual(["y", "z", "x"]);
    expect(order("z")).toEqual(["z", "y", "x"]);
  });

  it("finds the family that comes closest to its limit", () => {
    const families = [
      { name: "a", error: 1, limit: 10 },
      { name: "b", error: "inf", limit: 1 },
      { name: "c", error: 0, limit: null },
    ];
    expect(worstFamily({ families })).toEqual({ name: "b", share: Number.POSITIVE_INFINITY });
    expect(worstFamily({ families: [{ name: "own", error: 1, limit: null }] })).toBeNull();
    expect([limits(0.11), limits(6501.68), limits(Number.POSITIVE_INFINITY)]).toEqual([
      "11 %",
      "6,500 limits",
      "without bound",
    ]);
  });
});

describe("what may be done with a node", () => {
  const free = {
    seq: 4,
    state: "judged",
    verdict: "accepted",
    mark: null,
    source: "x",
    kernel_id: null,
    best: true,
  };

  it("allows what the service allows, and says why not otherwise", () => {
    expect(reasons(free, { state: "running" })).toMatchObject({
      branch: null,
      pin: null,
      ban: null,
      idea: null,
    });
    expect(reasons(free, { state: "finished" })).toMatchObject({ branch: null });
    expect(reasons(free, { state: "finished" }).pin).toContain("branch a new search");
    expect(reasons({ ...free, verdict: "rejected" }, { state: "running" }).idea).toContain(
      "accepted candidate",
    );
    expect(reasons({ ...free, seq: 0, source: null }, { state: "running" })).toMatchObject({
      pin: null,
      idea: null,
    });
    expect(reasons({ ...free, seq: 0, source: null }, { state: "running" }).ban).toContain("root");
    expect(reasons(free, { state: "running" }).export).toContain("when the search ends");
    expect(reasons({ ...free, kernel_id: "kn_1" }, { state: "finished" }).export).toBeNull();
  });
});
