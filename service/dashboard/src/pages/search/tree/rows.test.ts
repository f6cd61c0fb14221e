import { expect, it, vi } from "vitest";
import { EMPTY_TREE, fold, readTree } from "./rows";
import { page, row, small, treeFrom } from "./testing";
import { summary } from "./words";

it("builds children by rising seq, whatever the order of the rows", () => {
  const tree = treeFrom([row(3, 0), row(1, 0), row(0, null), row(2, 1)]);
  expect(tree.rootId).toBe("n0");
  expect(tree.children.get("n0")).toEqual(["n1", "n3"]);
  expect(tree.children.get("n1")).toEqual(["n2"]);
});

it("keeps the shape where only verdicts change, and what did not change", () => {
  const before = small();
  const after = fold(before, page([row(4, 1, { verdict: "rejected", updated_at: 2 })]));
  expect(after.rows.get("n4")?.verdict).toBe("rejected");
  expect(after.children).toBe(before.children);
  expect(after.rows.get("n5")).toBe(before.rows.get("n5"));
  expect(before.rows.get("n4")?.verdict).toBe("accepted");
});

it("is the same tree after rows that it has already", () => {
  const tree = small();
  expect(fold(tree, page([row(4, 1), row(6, 3)]))).toBe(tree);
});

it("adds new rows below their parents, and only there", () => {
  const before = small();
  const after = fold(before, page([row(7, 3), row(8, 7)]));
  expect(after.children.get("n3")).toEqual(["n6", "n7"]);
  expect(after.children.get("n7")).toEqual(["n8"]);
  expect(after.children.get("n1")).toBe(before.children.get("n1"));
});

it("takes the path to the best from the newest page, without touching the rows", () => {
  const before = small();
  const after = fold(before, page([], { best_node_id: "n4", best_path: ["n0", "n1", "n4"] }));
  expect(after.bestPath).toEqual(["n0", "n1", "n4"]);
  expect(after.bestId).toBe("n4");
  expect(after.rows).toBe(before.rows);
  const again = fold(after, page([], { as_of: 9, best_node_id: "n4", best_path: ["n0", "n1", "n4"] }));
  expect(again.bestPath).toBe(after.bestPath);
  expect(again.asOf).toBe(9);
});

it("reads all pages at first, and then what changed since the first page was read", async () => {
  const asked: string[] = [];
  const pages = [
    page([row(0, null), row(1, 0)], { as_of: 10, next_after_seq: 1 }),
    page([row(2, 0)], { as_of: 11 }),
    page([row(2, 0, { verdict: "rejected", updated_at: 12 })], { as_of: 13 }),
  ];
  vi.stubGlobal("fetch", async (request: Request) => {
    const query = new URL(request.url).searchParams;
    asked.push(`${query.get("after_seq")} ${query.get("updated_since")}`);
    return Response.json(pages.shift());
  });
  const tree = await readTree("sr_1", undefined);
  expect(tree.rows.size).toBe(3);
  expect(tree.asOf).toBe(10);
  const later = await readTree("sr_1", tree);
  expect(asked).toEqual(["-1 null", "1 null", "-1 10"]);
  expect(later.rows.get("n2")?.verdict).toBe("rejected");
  expect(later.rows.size).toBe(3);
  expect(later.asOf).toBe(13);
});

it("gives every row all fields in one order, whatever the document left out", () => {
  const rows = [
    row(0, null),
    {
      id: "n1",
      seq: 1,
      round: 1,
      state: "planned",
      origin: "model",
      verification: "none",
      updated_at: 1,
      parent_id: "n0",
    },
  ];
  const shapes = [...fold(EMPTY_TREE, page(rows)).rows.values()].map((one) => Object.keys(one).join());
  expect(new Set(shapes).size).toBe(1);
});

it("says of what was planned that it was not tried once the search has ended, and again once it goes on", () => {
  const planned = row(1, 0, { state: "planned", verdict: null });
  const running = fold(EMPTY_TREE, { ...page([row(0, null), planned]), state: "running" });
  expect(running.rows.get("n1")?.state).toBe("planned");
  const ended = fold(running, { ...page([]), state: "finished" });
  expect([ended.rows.get("n1")?.state, ended.rows.get("n0")?.state]).toEqual([
    "not_tried",
    row(0, null).state,
  ]);
  expect(summary(ended)).toContain("1 not tried");
  expect(fold(ended, { ...page([planned]), state: "finished" }).rows).toBe(ended.rows);
  expect(fold(ended, { ...page([]), state: "running" }).rows.get("n1")?.state).toBe("planned");
});

it("has no root before the first row", () => {
  expect(fold(EMPTY_TREE, page([])).rootId).toBeNull();
});
