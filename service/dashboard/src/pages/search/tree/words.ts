/** A node in words: for the tooltip, the list, the line that is read aloud. Nothing here is escaped yet. */

import { format } from "../../../design";
import { isBusy, isSlower, kindOf, LOOKS } from "./kinds";
import { NOT_TRIED, type SearchTree, type TreeRow } from "./rows";

export function titleOf(row: TreeRow): string {
  return row.title || (row.seq === 0 ? "Reference" : `Idea #${row.seq}`);
}

/** Verdict with its gate where it failed, or what it is doing: `rejected at screen`, `judging`, `accepted, verifying`. */
export function standing(row: TreeRow): string {
  const kind = kindOf(row);
  if (kind === "running" || kind === "waiting") return format.words(row.state);
  const word = LOOKS[kind].word;
  if (row.state === NOT_TRIED) return "not tried";
  if (isBusy(row)) return `${word}, verifying`;
  if (kind === "verified" || kind === "screened") return `${word}, ${kind}${isSlower(row) ? ", slower" : ""}`;
  if (kind === "duplicate") return `duplicate of #${row.duplicate_of}`;
  if (kind === "reference" || !row.gate) return word;
  return `${word} at ${format.words(row.gate)}`;
}

/** One sentence with all that the drawing says of a node. */
export function sentence(row: TreeRow, tree: SearchTree): string {
  const inside = tree.children.get(row.id)?.length ?? 0;
  return [
    `#${row.seq} ${titleOf(row)}`,
    standing(row),
    row.score != null && format.speedup(row.score, row.ci95),
    row.technique && format.words(row.technique),
    row.mark,
    row.id === tree.bestId && "the best so far",
    `depth ${depthOf(row, tree)}`,
    inside > 0 && `${inside} ${inside === 1 ? "child" : "children"}`,
  ]
    .filter(Boolean)
    .join(", ");
}

function depthOf(row: TreeRow, tree: SearchTree): number {
  let depth = 0;
  let at: TreeRow | undefined = row;
  while (at?.parent_id && depth < tree.rows.size) {
    at = tree.rows.get(at.parent_id);
    depth += 1;
  }
  return depth;
}

/** The whole tree in a sentence, for who does not see it. */
export function summary(tree: SearchTree): string {
  const counts = new Map<string, number>();
  for (const row of tree.rows.values()) {
    if (row.seq === 0) continue;
    const word = row.state === NOT_TRIED ? "not tried" : LOOKS[kindOf(row)].word;
    counts.set(word, (counts.get(word) ?? 0) + 1);
  }
  const total = Math.max(0, tree.rows.size - (tree.rootId ? 1 : 0));
  const parts = [...counts].sort((a, b) => b[1] - a[1]).map(([word, count]) => `${count} ${word}`);
  const best = tree.bestId ? tree.rows.get(tree.bestId) : undefined;
  return [
    `Tree of ${total} ${total === 1 ? "idea" : "ideas"}`,
    ...parts,
    best && `best #${best.seq} ${format.ratio(best.score)}`,
  ]
    .filter(Boolean)
    .join(", ");
}
