/** Which nodes of a tree are shown. The address bar says it; what leads to a shown node is shown too. Pure. */

import { kindOf, LOOKS } from "./kinds";
import type { SearchTree, TreeRow } from "./rows";

/** What a node may be asked to be: `verified` and `screened` are accepted ones. */
export const STANDINGS = [
  "accepted",
  "verified",
  "screened",
  "rejected",
  "quarantined",
  "ambiguous",
  "under way",
  "closed",
] as const;

export interface TreeFilters {
  standing: string | null;
  technique: string | null;
  round: number | null;
  fasterThan: number | null;
  duplicates: boolean;
}

/** The parameters of the address, by what they are called there. */
export const PARAMETERS = ["standing", "technique", "round", "faster", "duplicates"] as const;

function numberOf(text: string | null): number | null {
  const value = text === null || text.trim() === "" ? Number.NaN : Number(text);
  return Number.isFinite(value) && value >= 0 ? value : null;
}

export function filtersOf(params: URLSearchParams): TreeFilters {
  const standing = params.get("standing");
  return {
    standing: STANDINGS.find((one) => one === standing) ?? null,
    technique: params.get("technique") || null,
    round: numberOf(params.get("round")),
    fasterThan: numberOf(params.get("faster")),
    duplicates: params.get("duplicates") === "show",
  };
}

/** Whether nodes are looked for, besides the duplicates that are folded away unless they are asked for. */
export function isFiltering({ standing, technique, round, fasterThan }: TreeFilters): boolean {
  return standing !== null || technique !== null || round !== null || fasterThan !== null;
}

function matches(row: TreeRow, filters: TreeFilters): boolean {
  if (row.seq === 0) return false;
  if (filters.technique !== null && row.technique !== filters.technique) return false;
  if (filters.round !== null && row.round !== filters.round) return false;
  if (filters.fasterThan !== null && !((row.score ?? 0) > filters.fasterThan)) return false;
  return filters.standing === null || stands(row, filters.standing);
}

function stands(row: TreeRow, standing: string): boolean {
  const kind = kindOf(row);
  if (standing === "under way") return kind === "running" || kind === "waiting";
  if (standing === "closed") return kind === "closed" || kind === "duplicate";
  return standing === kind || standing === LOOKS[kind].word;
}

export interface Shown {
  tree: SearchTree;
  /** Nodes that match; all but the root where nothing is looked for. */
  matching: number;
  /** Duplicates that are folded away. */
  folded: number;
}

/** The tree with what is asked for and what leads to it. It is the same object where nothing is left out. */
export function shownOf(tree: SearchTree, filters: TreeFilters): Shown {
  const filtering = isFiltering(filters);
  const wanted = new Set<string>();
  let matching = 0;
  let folded = 0;
  for (const row of tree.rows.values()) {
    // What other nodes were built on is no mere repetition.
    const duplicate = kindOf(row) === "duplicate" && !tree.children.get(row.id)?.length;
    if (duplicate && !filters.duplicates) {
      folded += 1;
      continue;
    }
    if (filtering && !matches(row, filters)) continue;
    matching += row.seq === 0 ? 0 : 1;
    lead(tree, row, wanted);
  }
  if (wanted.size === tree.rows.size) return { tree, matching, folded };
  const children = new Map<string, readonly string[]>();
  for (const [id, ids] of tree.children) {
    if (!wanted.has(id)) continue;
    const kept = ids.filter((child) => wanted.has(child));
    if (kept.length > 0) children.set(id, kept);
  }
  const rows = new Map([...tree.rows].filter(([id]) => wanted.has(id)));
  return { tree: { ...tree, children, rows }, matching, folded };
}

/** Wants a node and all that lead to it. */
function lead(tree: SearchTree, row: TreeRow, wanted: Set<string>): void {
  let at: TreeRow | undefined = row;
  while (at && !wanted.has(at.id)) {
    wanted.add(at.id);
    at = at.parent_id === null ? undefined : tree.rows.get(at.parent_id);
  }
}

/** The techniques and rounds that there are. */
export function choicesOf(tree: SearchTree): { techniques: string[]; rounds: number[] } {
  const techniques = new Set<string>();
  const rounds = new Set<number>();
  for (const { seq, technique, round } of tree.rows.values()) {
    if (seq === 0) continue;
    if (technique) techniques.add(technique);
    rounds.add(round);
  }
  return { techniques: [...techniques].sort(), rounds: [...rounds].sort((a, b) => a - b) };
}
