import {
  EMPTY_TREE,
  fold,
  type RowDocument,
  rowOf,
  type SearchTree,
  type TreePage,
  type TreeRow,
} from "./rows";

/** A row for tests: what is not said is that of an accepted node. */
export function row(seq: number, parent: number | null, more: Partial<TreeRow> = {}): TreeRow {
  return rowOf({
    id: `n${seq}`,
    ...(parent !== null && { parent_id: `n${parent}` }),
    seq,
    round: 1,
    state: "judged",
    verdict: "accepted",
    origin: "model",
    verification: "none",
    title: `Idea ${seq}`,
    updated_at: 1,
    ...more,
  });
}

export function page(rows: RowDocument[], more: Partial<TreePage> = {}): TreePage {
  return {
    state: "running",
    as_of: 1,
    best_node_id: null,
    best_path: [],
    rows,
    next_after_seq: null,
    ...more,
  };
}

export function treeFrom(rows: RowDocument[], more: Partial<TreePage> = {}): SearchTree {
  return fold(EMPTY_TREE, page(rows, more));
}

/** The root with three children; the first of them has two, the last has one. */
export function small(): SearchTree {
  return treeFrom([row(0, null), row(1, 0), row(2, 0), row(3, 0), row(4, 1), row(5, 1), row(6, 3)]);
}
