/** Differences of two codes as rows: lines in pairs, words marked within them, long equal stretches folded. Pure. */

import { diffArrays, diffWordsWithSpace } from "diff";
import type { Token } from "../highlight";

type Span = readonly [from: number, to: number];

export interface Side {
  /** From 1. */
  number: number;
  text: string;
  /** Parts that differ from the other side; empty where the whole line does, or none of it. */
  marks: readonly Span[];
}

export interface Row {
  kind: "same" | "changed" | "removed" | "added";
  left: Side | null;
  right: Side | null;
}

export interface Fold {
  kind: "fold";
  /** Of the first folded row: stays the same while others are opened. */
  key: number;
  rows: readonly Row[];
}

interface Difference {
  rows: readonly Row[];
  removed: number;
  added: number;
}

/** As lines are shown: line ends are alike, and the last one begins no line. */
export function linesOf(code: string): string[] {
  return code.replace(/\r\n?/g, "\n").replace(/\n$/, "").split("\n");
}

/** The search for a shortest difference takes time by their square. */
const MOST_EDITS = 1200;
/** Lines of one stretch: a longer one is another code, in which single words say nothing. */
const MOST_MARKED = 200;
const LONGEST_MARKED = 600;

/** The rows of a difference. Codes too unlike to be compared line by line stand as one removed and one added whole. */
export function difference(before: string, after: string, ignoreSpace: boolean): Difference {
  const [old, now] = [linesOf(before), linesOf(after)];
  const plain = (line: string) => line.replace(/\s+/g, " ").trim();
  const [oldKeys, nowKeys] = ignoreSpace ? [old.map(plain), now.map(plain)] : [old, now];
  const parts = diffArrays(oldKeys, nowKeys, { maxEditLength: MOST_EDITS }) ?? [
    { count: old.length, removed: true, added: false },
    { count: now.length, removed: false, added: true },
  ];
  const rows: Row[] = [];
  let [left, right, removed, added] = [0, 0, 0, 0];
  for (let at = 0; at < parts.length; at += 1) {
    const part = parts[at];
    if (!part) continue;
    if (!part.added && !part.removed) {
      for (let n = 0; n < part.count; n += 1) {
        rows.push({ kind: "same", left: side(old, left + n), right: side(now, right + n) });
      }
      left += part.count;
      right += part.count;
      continue;
    }
    const next = parts[at + 1];
    const both = next && (part.removed ? next.added : next.removed);
    if (both) at += 1;
    const out = part.removed ? part.count : both ? next.count : 0;
    const into = part.added ? part.count : both ? next.count : 0;
    rows.push(
      ...block(old.slice(left, left + out), now.slice(right, right + into), left, right, ignoreSpace),
    );
    left += out;
    right += into;
    removed += out;
    added += into;
  }
  return { rows, removed, added };
}

function side(lines: readonly string[], at: number, marks: readonly Span[] = []): Side {
  return { number: at + 1, text: lines[at] ?? "", marks };
}

/** Lines that were replaced: in pairs as far as they go, then what is left over. */
function block(
  old: readonly string[],
  now: readonly string[],
  left: number,
  right: number,
  ignoreSpace: boolean,
): Row[] {
  const length = Math.max(old.length, now.length);
  const marked = length <= MOST_MARKED;
  return Array.from({ length }, (_, at): Row => {
    const [before, after] = [old[at], now[at]];
    if (before === undefined)
      return { kind: "added", left: null, right: { number: right + at + 1, text: after ?? "", marks: [] } };
    if (after === undefined)
      return { kind: "removed", left: { number: left + at + 1, text: before, marks: [] }, right: null };
    const [out, into] = marked ? words(before, after, ignoreSpace) : [[], []];
    return {
      kind: "changed",
      left: { number: left + at + 1, text: before, marks: out },
      right: { number: right + at + 1, text: after, marks: into },
    };
  });
}

const ALIKE = 0.5;

/** The words that differ between two lines; nothing where the lines have next to nothing in common. */
export function words(before: string, after: string, ignoreSpace: boolean): readonly [Span[], Span[]] {
  if (before.length > LONGEST_MARKED || after.length > LONGEST_MARKED) return [[], []];
  const [out, into]: [Span[], Span[]] = [[], []];
  let [left, right, common] = [0, 0, 0];
  for (const { value, added, removed } of diffWordsWithSpace(before, after)) {
    const counts = !ignoreSpace || value.trim() !== "";
    if (removed) {
      if (counts) extend(out, left, left + value.length);
      left += value.length;
    } else if (added) {
      if (counts) extend(into, right, right + value.length);
      right += value.length;
    } else {
      common += value.trim().length;
      left += value.length;
      right += value.length;
    }
  }
  const length = (before.trim().length + after.trim().length) / 2;
  return common < ALIKE * length ? [[], []] : [out, into];
}

function extend(spans: Span[], from: number, to: number): void {
  const last = spans.at(-1);
  if (last && last[1] === from) spans[spans.length - 1] = [last[0], to];
  else spans.push([from, to]);
}

const CONTEXT = 3;

/** The rows with equal stretches folded but for a few lines around each change; `open` names folds to leave open. */
export function folded(rows: readonly Row[], open: ReadonlySet<number>, context = CONTEXT): (Row | Fold)[] {
  const found: (Row | Fold)[] = [];
  for (let from = 0; from < rows.length; ) {
    let to = from;
    while (to < rows.length && (rows[to]?.kind === "same") === (rows[from]?.kind === "same")) to += 1;
    const first = from === 0 ? from : from + context;
    const last = to === rows.length ? to : to - context;
    const hidden = rows[from]?.kind === "same" && last - first > 1 && !open.has(first);
    if (hidden) {
      found.push(...rows.slice(from, first), { kind: "fold", key: first, rows: rows.slice(first, last) });
      found.push(...rows.slice(last, to));
    } else found.push(...rows.slice(from, to));
    from = to;
  }
  return found;
}

export interface Line {
  kind: "same" | "removed" | "added";
  left: number | null;
  right: number | null;
  side: "left" | "right";
  text: string;
  marks: readonly Span[];
}

/** Rows one below the other: of a stretch of changes, what was removed and then what was added. */
export function unified(rows: readonly (Row | Fold)[]): (Line | Fold)[] {
  const found: (Line | Fold)[] = [];
  let pending: Line[] = [];
  const flush = () => {
    found.push(...pending);
    pending = [];
  };
  for (const row of rows) {
    if (row.kind === "fold" || row.kind === "same") flush();
    if (row.kind === "fold") found.push(row);
    else if (row.kind === "same" && row.left && row.right)
      found.push(line("same", row.right, row.left.number, row.right.number, "right"));
    else {
      if (row.left) found.push(line("removed", row.left, row.left.number, null, "left"));
      if (row.right) pending.push(line("added", row.right, null, row.right.number, "right"));
    }
  }
  flush();
  return found;
}

function line(
  kind: Line["kind"],
  { text, marks }: Side,
  left: number | null,
  right: number | null,
  from: Line["side"],
): Line {
  return { kind, left, right, side: from, text, marks };
}

interface Piece {
  marked: boolean;
  tokens: Token[];
}

/** A line's tokens cut at its marks. */
export function pieces(tokens: readonly Token[], marks: readonly Span[]): Piece[] {
  const found: Piece[] = [];
  let at = 0;
  function put(marked: boolean, token: Token) {
    const last = found.at(-1);
    if (last && last.marked === marked) last.tokens.push(token);
    else found.push({ marked, tokens: [token] });
  }
  for (const { text, kind } of tokens) {
    const end = at + text.length;
    for (let from = at; from < end; ) {
      const mark = marks.find(([, to]) => to > from);
      const inside = mark !== undefined && mark[0] <= from;
      const to = Math.min(end, mark === undefined ? end : inside ? mark[1] : mark[0]);
      put(inside, { text: text.slice(from - at, to - at), kind });
      from = to;
    }
    at = end;
  }
  return found;
}
