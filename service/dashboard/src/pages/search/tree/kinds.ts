/** How a node stands, as the tree shows it: one kind, with its colour, its shape and its word. */

import type { TreeRow } from "./rows";

export type Kind =
  | "reference"
  | "accepted"
  | "rejected"
  | "quarantined"
  | "ambiguous"
  | "running"
  | "waiting"
  | "closed";

type Shape = "circle" | "square" | "cross" | "triangle" | "diamond" | "ring" | "dots" | "dash";

interface Look {
  word: string;
  shape: Shape;
  color: `--${string}`;
  /** Drawn small and pale: what failed stays visible without asking for attention. */
  quiet: boolean;
}

export const LOOKS: Readonly<Record<Kind, Look>> = {
  reference: { word: "reference", shape: "square", color: "--text-2", quiet: false },
  accepted: { word: "accepted", shape: "circle", color: "--ok", quiet: false },
  rejected: { word: "rejected", shape: "cross", color: "--bad", quiet: true },
  quarantined: { word: "quarantined", shape: "triangle", color: "--warn", quiet: false },
  ambiguous: { word: "ambiguous", shape: "diamond", color: "--warn", quiet: false },
  running: { word: "running", shape: "dots", color: "--accent", quiet: false },
  waiting: { word: "waiting", shape: "ring", color: "--wait", quiet: false },
  closed: { word: "closed", shape: "dash", color: "--wait", quiet: true },
};

const VERDICTS: Readonly<Record<string, Kind>> = {
  accepted: "accepted",
  rejected: "rejected",
  quarantined: "quarantined",
  ambiguous: "ambiguous",
};

const ACTIVE = new Set(["coding", "judging"]);

/** A node with a verdict keeps it while it is verified; see `isBusy`. */
export function kindOf(row: TreeRow): Kind {
  if (row.seq === 0) return "reference";
  if (ACTIVE.has(row.state)) return "running";
  const verdict = row.verdict ? VERDICTS[row.verdict] : undefined;
  if (verdict) return verdict;
  return row.state === "closed" ? "closed" : "waiting";
}

/** Whether something is under way on it: it pulses. */
export function isBusy(row: TreeRow): boolean {
  return ACTIVE.has(row.state) || row.verification === "open";
}

/** Which of several nodes on one spot is seen: what succeeded before what runs, and that before what failed. */
const RANK: Readonly<Record<Kind, number>> = {
  reference: 7,
  accepted: 6,
  running: 5,
  quarantined: 4,
  ambiguous: 3,
  waiting: 2,
  rejected: 1,
  closed: 0,
};

export function rankOf(row: TreeRow): number {
  return RANK[kindOf(row)];
}
