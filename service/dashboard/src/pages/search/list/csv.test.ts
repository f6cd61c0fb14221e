import { expect, it } from "vitest";
import { row, treeFrom } from "../tree/testing";
import { csvOf } from "./csv";

it("has a line for each node, by number, with its parent's number", () => {
  const tree = treeFrom(
    [
      row(0, null, { title: "reference" }),
      row(2, 1, { score: 1.5, ci95: [1.4, 1.6], technique: "fusion", gate: "time" }),
      row(1, 0, { verdict: "rejected" }),
    ],
    { best_node_id: "n2", best_path: ["n0", "n1", "n2"] },
  );
  const [head, , first, second, end] = csvOf(tree).split("\r\n");
  expect(head).toMatch(/^number,parent,round,technique,title,/);
  expect(first).toMatch(/^1,0,1,,Idea 1,model,judged,rejected,/);
  expect(second).toBe("2,1,1,fusion,Idea 2,model,judged,accepted,time,none,1.5,1.4,1.6,,,yes,n2");
  expect(end).toBe("");
});

it("quotes what would break a line, and makes no formula of a title", () => {
  const tree = treeFrom([
    row(0, null, { title: 'Say "a, b"\nc' }),
    row(1, 0, { title: "=HYPERLINK(1)" }),
    row(2, 0, { title: "-1+1" }),
  ]);
  const text = csvOf(tree);
  expect(text).toContain('"Say ""a, b""\nc"');
  expect(text).toContain(",'=HYPERLINK(1),");
  expect(text).toContain(",'-1+1,");
});
