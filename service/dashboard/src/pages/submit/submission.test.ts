import { expect, it } from "vitest";
import type { OptionsDocument } from "../../api/queries";
import { EMPTY } from "./draft";
import {
  type CheckedSpec,
  limitsOf,
  optionsFor,
  providerOf,
  rangeOf,
  submissionOf,
  targetOf,
} from "./submission";

const OPTIONS: OptionsDocument = {
  targets: [
    { target: "cuda:sm_90", device: "cuda", languages: ["triton", "cuda"], live_workers: 1 },
    { target: "cpu:x86_64", device: "cpu", languages: ["cpp"], live_workers: 0 },
  ],
  policies: [
    {
      name: "idea_beam",
      summary: "",
      parameters: [
        { name: "beam", type: "integer", default: 2, minimum: 1, maximum: 64, above: false },
        { name: "stop_fraction", type: "number", default: 0.95, minimum: 0, maximum: 1, above: true },
        { name: "restart", type: "boolean", default: true, above: false },
      ],
    },
  ],
  limits: ["candidates", "tokens", "wall_clock_s"],
  providers: [{ name: "openai", ready: false, detail: "" }],
  default_model: "m",
  most_seeds: 3,
  techniques: [],
};
const SPEC: CheckedSpec = { valid: true, errors: [], spec: { name: "a" } };
const POOLS = [
  { id: "pl_1", header: { op: "a", target: "cpu:x86_64" } },
  { id: "pl_2", header: { op: "a", target: "cuda:sm_90" } },
];
const AGENT = { ...EMPTY, provider: "agent" as const };

it("sends the spec, the first target and what was filled in", () =>
  expect(submissionOf(AGENT, SPEC, OPTIONS, [])).toEqual({
    problems: null,
    body: {
      op: { name: "a" },
      target: "cuda:sm_90",
      budget: { candidates: 20 },
      model: { provider: "agent" },
    },
  }));

it("names a stored op by its id, and gives times in seconds", () =>
  expect(
    submissionOf(
      { ...AGENT, target: "cpu:x86_64", language: "triton", budget: { wall_clock_s: "0.1" }, seeds: "2" },
      { ...SPEC, op_id: "op_1" },
      OPTIONS,
      [],
    ).body,
  ).toEqual({
    op_id: "op_1",
    target: "cpu:x86_64",
    budget: { wall_clock_s: 6 },
    model: { provider: "agent" },
    seeds: 2,
  }));

it("labels the search with the name and the tags that were typed", () => {
  const labelled = { ...AGENT, name: " wide rows ", tags: "nightly, h200,,  nightly" };
  expect(submissionOf(labelled, SPEC, OPTIONS, []).body).toMatchObject({
    name: "wide rows",
    tags: ["nightly", "h200"],
  });
  expect(submissionOf({ ...AGENT, name: " ", tags: " , " }, SPEC, OPTIONS, []).body).not.toHaveProperty(
    "tags",
  );
});

it("sends only the parameters that were typed, in their own types", () =>
  expect(
    submissionOf(
      { ...AGENT, policy: "idea_beam", parameters: { idea_beam: { beam: "4", restart: "false" } } },
      SPEC,
      OPTIONS,
      [],
    ).body?.policy,
  ).toEqual({ name: "idea_beam", beam: 4, restart: false }));

it("names every field that is wrong", () =>
  expect(
    submissionOf(
      {
        ...EMPTY,
        provider: "replay",
        otherTarget: true,
        target: " ",
        policy: "idea_beam",
        parameters: { idea_beam: { beam: "2.5", stop_fraction: "0" } },
        budget: { tokens: "many" },
        seeds: "x",
      },
      SPEC,
      OPTIONS,
      [],
    ).problems,
  ).toEqual({
    target: "Name a target, such as cuda:sm_90",
    "budget.tokens": "found many, expected a whole number from 1 to 1000000000000",
    seeds: "found x, expected a whole number from 0 to 3",
    "model.pool": "Choose the pool to replay",
    "policy.beam": "found 2.5, expected a whole number from 1 to 64",
    "policy.stop_fraction": "found 0, expected a number above 0 and up to 1",
  }));

it("says of a limit in the unit of its field why it cannot be one, in plain numbers", () => {
  const limits = ["candidates", "cost_usd", "wall_clock_s", "gpu_seconds", "try_seconds", "sweep_seconds"];
  const typed = {
    candidates: "0",
    cost_usd: "2e9",
    wall_clock_s: "-1",
    gpu_seconds: "0",
    try_seconds: "16666667",
    sweep_seconds: "soon",
  };
  const minutes = "a number above 0 and at most 16666666";
  const options = { ...OPTIONS, limits };
  expect(submissionOf({ ...AGENT, budget: typed }, SPEC, options, [])).toEqual({
    body: null,
    problems: {
      "budget.candidates": "found 0, expected a whole number from 1 to 1000000000000",
      "budget.cost_usd": "found 2e9, expected a number above 0 and at most 1000000000",
      "budget.wall_clock_s": `found -1, expected ${minutes}`,
      "budget.gpu_seconds": `found 0, expected ${minutes}`,
      "budget.try_seconds": `found 16666667, expected ${minutes}`,
      "budget.sweep_seconds": `found soon, expected ${minutes}`,
    },
  });
  const most = { wall_clock_s: "16666666", gpu_seconds: "0.000001" };
  expect(submissionOf({ ...AGENT, budget: most }, SPEC, options, []).body?.budget).toEqual({
    wall_clock_s: 999999960,
    gpu_seconds: 0.00006,
  });
});

it("refuses more or fewer stored kernels than can be", () =>
  expect(
    ["-1", "4"].map((seeds) => submissionOf({ ...AGENT, seeds }, SPEC, OPTIONS, []).problems?.seeds),
  ).toEqual([
    "found -1, expected a whole number from 0 to 3",
    "found 4, expected a whole number from 0 to 3",
  ]));

it("chooses a provider that works now until one is chosen", () => {
  expect(providerOf(EMPTY, OPTIONS, "")).toBe("agent");
  expect(providerOf(EMPTY, OPTIONS, "pl_1")).toBe("replay");
  const ready = { ...OPTIONS, providers: [{ name: "openai" as const, ready: true, detail: "" }] };
  expect(providerOf(EMPTY, ready, "pl_1")).toBe("openai");
  expect(providerOf(AGENT, ready, "pl_1")).toBe("agent");
});

it("replays the pool of this op and target until one is chosen", () => {
  const spec = { ...SPEC, name: "a" };
  const replay = { ...EMPTY, provider: "replay" as const };
  expect(submissionOf(replay, spec, OPTIONS, POOLS).body?.model).toEqual({
    provider: "replay",
    pool: "pl_2",
  });
  expect(submissionOf({ ...replay, pool: "pl_1" }, spec, OPTIONS, POOLS).body?.model).toEqual({
    provider: "replay",
    pool: "pl_1",
  });
  expect(submissionOf(replay, { ...spec, name: "b" }, OPTIONS, POOLS).problems).toHaveProperty("model.pool");
});

it("begins with a target that the op has workloads for, and replays only a pool that fits", () => {
  const cpu = optionsFor(OPTIONS, { devices: ["cpu"] });
  expect(targetOf(EMPTY, cpu)).toBe("cpu:x86_64");
  expect(targetOf({ ...EMPTY, target: "cuda:sm_90" }, cpu)).toBe("cuda:sm_90");
  expect(optionsFor(OPTIONS, undefined)).toBe(OPTIONS);
  expect(submissionOf(EMPTY, { ...SPEC, name: "b" }, OPTIONS, POOLS).body?.model).toEqual({
    provider: "agent",
  });
});

it("forgets a target that is no longer offered, but keeps one that was typed", () => {
  expect(targetOf({ ...EMPTY, target: "cuda:sm_80" }, OPTIONS)).toBe("cuda:sm_90");
  expect(targetOf({ ...EMPTY, target: "cuda:sm_80", otherTarget: true }, OPTIONS)).toBe("cuda:sm_80");
});

it("shows the limits that people set first, and those it does not know last", () =>
  expect(limitsOf(["watts", "wall_clock_s", "candidates"]).map(({ name }) => name)).toEqual([
    "candidates",
    "wall_clock_s",
    "watts",
  ]));

it("says what a parameter may be", () =>
  expect(rangeOf({ name: "n", type: "integer", default: 1, minimum: 0, above: false })).toBe(
    "a whole number from 0",
  ));
