import { expect, it } from "vitest";
import { envelopeOf, evidenceOf, hostInWords, lineageOf } from "./evidence";
import { kernelQuery, notCompared, picked } from "./query";
import { changed, changes } from "./Reverifications";
import { standingInWords, verificationInWords } from "./verification";

it("asks for what the address names and leaves the rest out", () =>
  expect(kernelQuery(new URLSearchParams("op=gelu&language=&sort=limit&order=asc&after=k&sort=x"))).toEqual({
    op: "gelu",
    after: "k",
    sort: "limit",
    order: "asc",
  }));

it("keeps two to compare", () => {
  expect(picked([], "a")).toEqual(["a"]);
  expect(picked(["a", "b"], "c")).toEqual(["b", "c"]);
  expect(picked(["a", "b"], "a")).toEqual(["b"]);
});

it("compares kernels of one op alone", () => {
  expect(notCompared({ op_name: "gelu" }, { op_name: "gelu" })).toBeNull();
  expect(notCompared({ op_name: "gelu" }, { op_name: "softmax" })).toBe(
    "The first is of gelu, the second of softmax: a speed-up of one op says nothing of another's.",
  );
});

it("says by what a call was made and what eager costs", () => {
  const host = { workload: "small", run: 7, eager: 5, plan: null, launches: null, unplanned: "no compiler" };
  expect(hostInWords(host)).toBe("a call by its run, small; eager 5.00 µs");
  expect(hostInWords({ ...host, plan: 2.5, launches: 3 })).toBe(
    "a call by a plan of 3 launches, small; eager 5.00 µs",
  );
});

it("reads evidence", () => {
  const evidence = evidenceOf({
    workloads: [{ id: "large", role: "bench", axes: { n: 65536 } }],
    evidence: {
      device: { name: "CPU", cores: 8, peaks: { bandwidth_gbs: {} } },
      versions: { torch: "2.9" },
      experts: { liger: { "liger-kernel": "0.8.5" }, mine: {} },
      sandbox: { level: "full", layers: ["landlock", "seccomp"] },
      fingerprint: "f",
      workloads: [
        {
          id: "large",
          role: "bench",
          error: { candidate: 1e-7, eager: 2e-7, limit: 4e-7 },
          time_us: { eager: 150, candidate: 50 },
          speedup: { eager: 3 },
          ci95: { eager: [2.9, 3.1] },
          repeatable: true,
          limit_fraction: 0.5,
          limit_by: "bytes",
        },
      ],
    },
  });
  expect(evidence).toMatchObject({
    device: "CPU",
    facts: [["cores", "8"]],
    versions: [
      ["torch", "2.9"],
      ["liger", "liger-kernel 0.8.5"],
    ],
    sandbox: "full",
    layers: ["landlock", "seccomp"],
  });
  expect(evidence.workloads[0]).toMatchObject({
    axes: { n: 65536 },
    error: 1e-7,
    errorLimit: 4e-7,
    limitBy: "bytes",
  });
  expect(evidence.workloads[0]?.timings).toEqual([
    { contender: "candidate", timeUs: 50, speedup: null, ci95: null },
    { contender: "eager", timeUs: 150, speedup: 3, ci95: [2.9, 3.1] },
  ]);
});

it("does not fall over what is not there or of another form", () => {
  expect(evidenceOf({ evidence: {} }).workloads).toEqual([]);
  expect(evidenceOf({ evidence: { attack: { skipped: 3 } } }).attack).toBeNull();
  const attack = {
    tries: 9,
    workloads: [{ ratio: 0.2 }, { ratio: null }, { ratio: 0.5 }],
    counterexample: null,
  };
  expect(evidenceOf({ evidence: { attack } }).attack).toEqual({
    tries: 9,
    ratio: 0.5,
    found: false,
    skipped: null,
  });
  expect(evidenceOf({ evidence: { workloads: [null], device: [], versions: "x" } }).workloads).toHaveLength(
    1,
  );
  expect(envelopeOf({ axes: [], inputs: null })).toEqual({ axes: [], inputs: [], outputs: [] });
  expect(lineageOf([{}])).toMatchObject([{ title: null, score: null, repairs: 0 }]);
});

it("says on what inputs a kernel was verified", () =>
  expect(
    envelopeOf({
      axes: { n: { verified: [1, 64], min: 1, max: 64 } },
      inputs: [
        { name: "x", dtype: "float32", rank: 1, contiguous: true, mutated: true },
        { name: "eps", dtype: "float32", rank: null, contiguous: true, mutated: false },
      ],
      outputs: [{ name: "y", dtype: "float32" }],
    }),
  ).toEqual({
    axes: [{ name: "n", verified: [1, 64] }],
    inputs: [
      { name: "x", type: "float32", note: "1 axis, contiguous, written to" },
      { name: "eps", type: "float32", note: "scalar" },
    ],
    outputs: [{ name: "y", type: "float32" }],
  }));

it.each([
  [true, "ok", "current"],
  [false, "warn", "outdated"],
  [null, "wait", "unknown"],
] as const)("puts whether it still holds (%s) in words", (current, tone, word) => {
  const state = verificationInWords({
    verdict: "accepted",
    verified_at: 0,
    device: "H200",
    sandbox: null,
    fingerprint: null,
    versions: {},
    protocol: 3,
    outdated_protocol: false,
    current,
  });
  expect(state).toMatchObject({ tone, word });
  expect(state.says).not.toBe("");
});

it("says that the judge checks more by now than it did then", () => {
  const state = verificationInWords({
    verdict: "accepted",
    verified_at: 0,
    device: "H200",
    sandbox: null,
    fingerprint: null,
    versions: {},
    protocol: 2,
    outdated_protocol: true,
    current: true,
  });
  expect(state).toMatchObject({ tone: "warn", word: "older protocol" });
  expect(state.says).toContain("protocol 2");
});

it.each([
  ["verified", false, "warn", "outdated"],
  ["holds", false, "ok", "holds"],
  ["holds", true, "warn", "due"],
  ["wrong", true, "bad", "wrong"],
  ["slower", false, "bad", "slower"],
  ["uncompilable", false, "bad", "no longer compiles"],
] as const)(
  "puts the latest re-verification before the first one (%s, due: %s)",
  (state, due, tone, word) => {
    const verification = {
      verdict: "accepted",
      verified_at: 0,
      device: "H200",
      sandbox: null,
      fingerprint: null,
      versions: {},
      protocol: 3,
      outdated_protocol: false,
      current: false,
    };
    const drifted = tone === "bad";
    const found = standingInWords(verification, { state, drifted, at: 1, due, under_way: null });
    expect(found).toMatchObject({ tone, word });
    expect(found.says).not.toBe("");
  },
);

it("names what has changed since a kernel was kept", () => {
  const measured = {
    device: "H200",
    versions: { torch: "2.13", driver: "580" },
    fingerprint: "f",
    score: 2,
    ci95: [1.9, 2.1],
    speedup: {},
    speedup_ci95: {},
  };
  expect(changes(measured, measured)).toEqual([]);
  expect(changes(measured, null)).toEqual([]);
  expect([changed(measured, measured), changed(measured, null), changed(null, null)]).toEqual([
    "nothing",
    "",
    "",
  ]);
  expect(
    changes(measured, {
      ...measured,
      device: "B200",
      versions: { torch: "2.14", driver: "580", triton: "3.9" },
    }),
  ).toEqual(["device H200 to B200", "torch 2.13 to 2.14", "triton none to 3.9"]);
});
