/** Where each node stands: a tidy tree from left to right, in columns (depth) and rows. Pure. */

import { type HierarchyPointNode, hierarchy, tree as tidy } from "d3-hierarchy";
import { colorOf, isSlower, type Kind, kindOf, rankOf } from "./kinds";
import type { SearchTree, TreeRow } from "./rows";

export interface Place {
  id: string;
  /** The node as it is now, and what is read of it for every frame; see `refresh`. */
  row: TreeRow;
  kind: Kind;
  color: `--${string}`;
  slower: boolean;
  rank: number;
  parent: Place | null;
  /** Shown children; none where it is collapsed. */
  children: Place[];
  depth: number;
  /** In rows: siblings stand one apart. The topmost node is at 0. */
  y: number;
  /** Nodes that a collapsed one hides. */
  hidden: number;
  /** The rows from the topmost to the lowest of its children: what its edges cover. */
  top: number;
  bottom: number;
}

export interface Layout {
  root: Place | null;
  byId: ReadonlyMap<string, Place>;
  /** Each depth's places by rising `y`. */
  columns: readonly (readonly Place[])[];
  /** The lowest row. */
  height: number;
}

export const EMPTY_LAYOUT: Layout = { root: null, byId: new Map(), columns: [], height: 0 };

interface Branch {
  row: TreeRow;
  hidden: number;
}

const COUSINS = 1.4;

/** Cousins stand a little further apart than siblings, so that families can be told. */
export function layout(
  tree: Pick<SearchTree, "rootId" | "children" | "rows">,
  collapsed: ReadonlySet<string>,
): Layout {
  const root = tree.rootId === null ? undefined : tree.rows.get(tree.rootId);
  if (!root) return EMPTY_LAYOUT;
  const inside = (branch: Branch): Branch[] | undefined => {
    const { id } = branch.row;
    const ids = tree.children.get(id);
    if (!ids || ids.length === 0) return undefined;
    if (collapsed.has(id)) {
      branch.hidden = below(tree.children, id);
      return undefined;
    }
    return ids.flatMap((child) => {
      const row = tree.rows.get(child);
      return row ? { row, hidden: 0 } : [];
    });
  };
  const arranged = tidy<Branch>()
    .nodeSize([1, 1])
    .separation((a, b) => (a.parent === b.parent ? 1 : COUSINS))(
    hierarchy<Branch>({ row: root, hidden: 0 }, inside),
  );
  return placed(arranged);
}

function placed(arranged: HierarchyPointNode<Branch>): Layout {
  const byId = new Map<string, Place>();
  const columns: Place[][] = [];
  let lowest = Number.POSITIVE_INFINITY;
  let highest = Number.NEGATIVE_INFINITY;
  // Breadth first, each depth from top to bottom: a parent is placed before its children.
  for (const node of arranged) {
    const parent = node.parent ? (byId.get(node.parent.data.row.id) ?? null) : null;
    const { row, hidden } = node.data;
    const place: Place = {
      id: row.id,
      row,
      kind: kindOf(row),
      color: colorOf(row),
      slower: isSlower(row),
      rank: rankOf(row),
      parent,
      children: [],
      depth: node.depth,
      y: node.x,
      hidden,
      top: 0,
      bottom: 0,
    };
    parent?.children.push(place);
    byId.set(row.id, place);
    let column = columns[node.depth];
    if (!column) {
      column = [];
      columns[node.depth] = column;
    }
    column.push(place);
    lowest = Math.min(lowest, node.x);
    highest = Math.max(highest, node.x);
  }
  for (const place of byId.values()) place.y -= lowest;
  for (const place of byId.values()) {
    place.top = place.children[0]?.y ?? place.y;
    place.bottom = place.children.at(-1)?.y ?? place.y;
  }
  return { root: columns[0]?.[0] ?? null, byId, columns, height: highest - lowest };
}

/** Takes over what changed of the nodes while none came or went: nothing has to be arranged anew. */
export function refresh(layout: Layout, rows: SearchTree["rows"]): void {
  for (const place of layout.byId.values()) {
    const row = rows.get(place.id);
    if (!row || row === place.row) continue;
    place.row = row;
    place.kind = kindOf(row);
    place.color = colorOf(row);
    place.slower = isSlower(row);
    place.rank = rankOf(row);
  }
}

/** How many nodes stand below one. */
export function below(children: SearchTree["children"], id: string): number {
  let count = 0;
  const open = [id];
  for (let at = open.pop(); at !== undefined; at = open.pop()) {
    const ids = children.get(at);
    if (!ids) continue;
    count += ids.length;
    open.push(...ids);
  }
  return count;
}

/** The collapsed nodes above one, which have to be opened for it to be seen. */
export function hiders(rows: SearchTree["rows"], collapsed: ReadonlySet<string>, id: string): string[] {
  const found: string[] = [];
  const seen = new Set<string>();
  let at = rows.get(id)?.parent_id;
  while (at && !seen.has(at)) {
    seen.add(at);
    if (collapsed.has(at)) found.push(at);
    at = rows.get(at)?.parent_id;
  }
  return found;
}

/** The index of the first place at or below a row. */
export function firstFrom(column: readonly Place[], y: number): number {
  let low = 0;
  let high = column.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if ((column[middle]?.y ?? 0) < y) low = middle + 1;
    else high = middle;
  }
  return low;
}
