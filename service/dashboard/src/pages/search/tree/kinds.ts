/** How a node stands, as the tree shows it: one kind, with its colour, its shape and its word. */

import { type Tone, toneOf } from "../../../design";
import { NOT_TRIED, type TreeRow } from "./rows";

export type Kind =
  | "reference"
  | "verified"
  | "screened"
  | "rejected"
  | "quarantined"
  | "ambiguous"
  | "running"
  | "waiting"
  | "duplicate"
  | "closed";

type Shape = "circle" | "open" | "square" | "cross" | "triangle" | "diamond" | "ring" | "dots" | "dash";

interface Look {
  word: string;
  shape: Shape;
  color: `--${string}`;
  /** Drawn small and pale: what failed stays visible without asking for attention. */
  quiet: boolean;
}

export const LOOKS: Readonly<Record<Kind, Look>> = {
  reference: { word: "reference", shape: "square", color: "--text-2", quiet: false },
  verified: { word: "accepted", shape: "circle", color: "--ok", quiet: false },
  screened: { word: "accepted", shape: "open", color: "--ok", quiet: false },
  rejected: { word: "rejected", shape: "cross", color: "--bad", quiet: true },
  quarantined: { word: "quarantined", shape: "triangle", color: "--warn", quiet: false },
  ambiguous: { word: "ambiguous", shape: "diamond", color: "--warn", quiet: false },
  running: { word: "running", shape: "dots", color: "--accent", quiet: false },
  waiting: { word: "waiting", shape: "ring", color: "--wait", quiet: false },
  duplicate: { word: "duplicate", shape: "dash", color: "--dup", quiet: true },
  closed: { word: "closed", shape: "dash", color: "--wait", quiet: true },
};

const VERDICTS: Readonly<Record<string, Kind>> = {
  rejected: "rejected",
  quarantined: "quarantined",
  ambiguous: "ambiguous",
};

const ACTIVE = new Set(["coding", "judging"]);

/** A node with a verdict keeps it while it is verified; see `isBusy`. */
export function kindOf(row: TreeRow): Kind {
  if (row.seq === 0) return "reference";
  if (ACTIVE.has(row.state)) return "running";
  if (row.verdict === "accepted") return row.verification === "passed" ? "verified" : "screened";
  const verdict = row.verdict ? VERDICTS[row.verdict] : undefined;
  if (verdict) return verdict;
  if (row.duplicate_of !== null) return "duplicate";
  return row.state === "closed" || row.state === NOT_TRIED ? "closed" : "waiting";
}

/** From here on a ratio is written as 1.00x: what is a tie to the eye is none that is slower. */
const EVEN = 0.995;

/** Steps of the colour of accepted nodes: slower than the fastest baseline, and how much faster. */
export const SPEEDS = [
  { from: 0, color: "--slower", word: "slower than the fastest baseline" },
  { from: EVEN, color: "--fast-1", word: "up to 1.25x" },
  { from: 1.25, color: "--fast-2", word: "1.25x to 2x" },
  { from: 2, color: "--fast-3", word: "2x or more" },
] as const;

/** The colour of a node: of an accepted one by its speed-up, of any other by its kind. */
export function colorOf(row: TreeRow): `--${string}` {
  const kind = kindOf(row);
  const { score } = row;
  if ((kind !== "verified" && kind !== "screened") || score === null) return LOOKS[kind].color;
  return SPEEDS.findLast(({ from }) => score >= from)?.color ?? SPEEDS[0].color;
}

/** Whether it was accepted and yet is slower than the fastest baseline. */
export function isSlower(row: Pick<TreeRow, "verdict" | "seq" | "score">): boolean {
  return row.verdict === "accepted" && row.seq > 0 && row.score !== null && row.score < EVEN;
}

/** The colour of a node's verdict; one that is right and slower is no success. */
export function toneOfRow(row: TreeRow): Tone {
  if (isSlower(row)) return "warn";
  return toneOf(row.seq === 0 ? "waiting" : (row.verdict ?? kindOf(row)));
}

/** Whether something is under way on it: it pulses. */
export function isBusy(row: TreeRow): boolean {
  return ACTIVE.has(row.state) || row.verification === "open";
}

/** Which of several nodes on one spot is seen: what succeeded before what runs, and that before what failed. */
const RANK: Readonly<Record<Kind, number>> = {
  reference: 9,
  verified: 8,
  screened: 6,
  running: 5,
  quarantined: 4,
  ambiguous: 3,
  waiting: 2,
  rejected: 1,
  duplicate: 0,
  closed: 0,
};

export function rankOf(row: TreeRow): number {
  return RANK[kindOf(row)];
}
