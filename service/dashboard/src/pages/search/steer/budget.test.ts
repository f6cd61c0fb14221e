import { expect, test } from "vitest";
import { changeOf, draftOf } from "./budget";

const spend = {
  candidates: 12,
  model_calls: 20,
  tokens: 5000,
  cost_usd: null,
  wall_clock_s: 300,
  gpu_seconds: 42,
  try_seconds: 0,
  sweep_seconds: 0,
};
const search = { spend, budget: { candidates: 40, cost_usd: 2.5, tokens: null } };

test("a form that is left as it is changes nothing", () => {
  expect(changeOf(draftOf(search.budget), search)).toEqual({ change: {}, errors: {} });
});

test("only what differs is sent, and an emptied field lifts its limit", () => {
  const draft = { ...draftOf(search.budget), candidates: "80", cost_usd: " ", wall_clock_s: "900.5" };
  expect(changeOf(draft, search)).toEqual({
    change: { candidates: 80, cost_usd: null, wall_clock_s: 900.5 },
    errors: {},
  });
});

test("what is no number, no whole number, or less than is spent is said beside its field", () => {
  const draft = {
    ...draftOf(search.budget),
    candidates: "11",
    model_calls: "30.5",
    tokens: "many",
    cost_usd: "0.01",
    gpu_seconds: "-1",
  };
  const { change, errors } = changeOf(draft, search);
  expect(Object.keys(errors).sort()).toEqual(["candidates", "gpu_seconds", "model_calls", "tokens"]);
  expect(errors.candidates).toContain("12 are spent");
  // Spending that is not known cannot be compared; the service decides.
  expect(change).toEqual({ cost_usd: 0.01 });
});
