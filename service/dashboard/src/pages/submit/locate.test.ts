import { expect, it } from "vitest";
import { lineInWords, lineOf, steps } from "./locate";

const SPEC = `# a comment
name: x
axes:
  n: {kind: var}
inputs:
  - {name: a, shape: [n, q], dtype: floaty}
  - name: b
    "shape":
      - n
reference: |
  def run(x):
    axes: 3
targets:
  cpu:
    workloads: [{id: a, role: bench, axes: {}}]
`;

it("takes a path apart", () =>
  expect(steps("targets.cpu.workloads[0].axes.n")).toEqual(["targets", "cpu", "workloads", 0, "axes", "n"]));

it.each([
  ["name", 2],
  ["axes.n.kind", 4],
  ["inputs[0].dtype", 6],
  ["inputs[1]", 7],
  ["inputs[1].shape[0]", 9],
  ["reference", 10],
  ["targets.cpu.workloads[0].role", 15],
])("finds %s on line %i", (field, line) => expect(lineOf(SPEC, field)).toBe(line));

it("points to what lacks a field", () => {
  expect(lineOf(SPEC, "targets.cpu.workloads[0].axes.n")).toBe(15);
  expect(lineOf(SPEC, "inputs[1].dtype")).toBe(7);
});

it("finds nothing where not even the beginning is there", () => {
  expect(lineOf(SPEC, "outputs[0].name")).toBeNull();
  expect(lineOf("", "name")).toBeNull();
});

it("reads JSON", () =>
  expect(lineOf('{\n "name": "x",\n "inputs": [\n  {"dtype": 1}]}', "inputs[0].dtype")).toBe(4));

it("reads the line out of a parse error", () => {
  expect(lineInWords("expected the node content (line 12, column 8)")).toBe(12);
  expect(lineInWords("not a mapping")).toBeNull();
});
