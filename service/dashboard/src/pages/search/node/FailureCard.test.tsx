import { render, screen } from "@testing-library/react";
import { expect, it } from "vitest";
import type { FailureDocument, ReportDocument } from "../../../api/node";
import { ToastProvider } from "../../../design";
import { FailureCard } from "./FailureCard";
import { WorkloadsView } from "./WorkloadsView";

const RECIPE = {
  workload: "decode",
  seed: 7,
  changes: [{ input: "x", move: "scale", exponent: -20 }],
};

const counterexample: FailureDocument = {
  kind: "counterexample",
  message: "workload decode: y[3] is 1.5, expected 1.25, on these values: x: scaled by 2^-20; w: NaN",
  workload: "decode",
  tensor: "y",
  index: [3],
  expected: 1.25,
  found: 1.5,
  eager: 1.2500001,
  limit: 0.001,
  wrong_elements: 1,
  elements: 8,
  description: "x: scaled by 2^-20\nw: one element set to \u202eNaN",
  recipe: RECIPE,
};

function report(changes: Partial<ReportDocument>): ReportDocument {
  return {
    node_id: "nd",
    verdict_id: "vd",
    level: "verify",
    verdict: "rejected",
    gate: "verify",
    reason: "wrong",
    created_at: 0,
    score: null,
    score_ci95: null,
    failure: null,
    compile: null,
    attack: null,
    workloads: [],
    device: {},
    versions: {},
    sandbox: {},
    fingerprint: null,
    seconds: {},
    ...changes,
  };
}

function show(found: ReportDocument) {
  render(
    <ToastProvider>
      <WorkloadsView report={found} />
    </ToastProvider>,
  );
}

it("lists the inputs of a counterexample and gives the recipe to copy", () => {
  render(
    <ToastProvider>
      <FailureCard report={report({ failure: counterexample })} />
    </ToastProvider>,
  );
  const list = screen.getByRole("list", { name: "The inputs on which it is wrong, and PyTorch right" });
  expect([...list.children].map((line) => line.textContent)).toEqual([
    "x: scaled by 2^-20",
    "w: one element set to \\u{202e}NaN",
  ]);
  expect(screen.getByText("PyTorch eager").nextSibling).toHaveTextContent("1.25");
  const recipe = screen.getByLabelText("Recipe of the inputs");
  expect(JSON.parse(recipe.textContent ?? "")).toEqual(RECIPE);
  expect(screen.getByRole("button", { name: "Copy" })).toBeInTheDocument();
});

it("shows nothing of this where a failure has no such inputs", () => {
  const { description: _, recipe: __, ...plain } = counterexample;
  show(report({ failure: { ...plain, kind: "wrong_value" } }));
  expect(screen.queryByRole("list")).toBeNull();
  expect(screen.queryByLabelText("Recipe of the inputs")).toBeNull();
});

it("says what the search for a counterexample came to", () => {
  show(report({ attack: { tries: 912, seconds: 4, ratio: 0.43, found: false } }));
  expect(
    screen.getByText("Counterexample search: 912 tries, worst error 0.43 of what is allowed"),
  ).toBeInTheDocument();
});
