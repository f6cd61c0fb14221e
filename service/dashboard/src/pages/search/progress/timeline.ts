/** From attempts to bars in rows of workers. Pure. */

import type { TimelineAttempt } from "../../../api/progress";
import type { BarMark, PlotTone } from "../../../design/plot";

export const KINDS = ["ideate", "code", "judge", "verify"] as const;

export const KIND_TONES: Readonly<Record<string, PlotTone>> = {
  ideate: "dup",
  code: "accent",
  judge: "warn",
  verify: "ok",
};

const FAILED = new Set(["failed", "expired", "error"]);

export interface AttemptBar extends BarMark {
  attempt: TimelineAttempt;
  /** Seconds that it ran, up to now where it still does. */
  seconds: number;
}

interface Timeline {
  workers: string[];
  bars: AttemptBar[];
  /** Seconds from the first attempt's opening to the last thing that happened. */
  span: number;
  origin: number;
  /** Attempts that no worker has taken. */
  queued: number;
}

/** Bars by worker, in seconds since `origin`; what one worker did at the same time stands in lanes of its row. */
export function timeline(attempts: readonly TimelineAttempt[], now: number): Timeline {
  const origin = attempts.reduce(
    (least, { created_at }) => Math.min(least, created_at),
    Number.POSITIVE_INFINITY,
  );
  const ran = attempts
    .filter(({ owner, started_at }) => owner !== null && started_at !== null)
    .sort((a, b) => (a.started_at ?? 0) - (b.started_at ?? 0));
  const byWorker = new Map<string, TimelineAttempt[]>();
  for (const attempt of ran) {
    const worker = workerOf(attempt.owner ?? "");
    const mine = byWorker.get(worker);
    if (mine) mine.push(attempt);
    else byWorker.set(worker, [attempt]);
  }
  const bars = [...byWorker].flatMap(([worker, mine]) => inLanes(worker, mine, origin, now));
  return {
    workers: [...byWorker.keys()],
    bars,
    span: bars.reduce((most, { to }) => Math.max(most, to), 1),
    origin: Number.isFinite(origin) ? origin : now,
    queued: attempts.filter(({ started_at, finished_at }) => started_at === null && finished_at === null)
      .length,
  };
}

/** The worker that owned an attempt: an owner is `WORKER:PROCESS:TOKEN`, with a token of its own for each step. */
function workerOf(owner: string): string {
  return owner.replace(/:\d+:[0-9a-f]+$/, "");
}

function inLanes(
  worker: string,
  attempts: readonly TimelineAttempt[],
  origin: number,
  now: number,
): AttemptBar[] {
  const freeFrom: number[] = [];
  const placed = attempts.map((attempt) => {
    const from = (attempt.started_at ?? origin) - origin;
    const to = Math.max(from, (attempt.finished_at ?? now) - origin);
    const open = freeFrom.findIndex((free) => free <= from);
    const lane = open < 0 ? freeFrom.length : open;
    freeFrom[lane] = to;
    return { attempt, from, to, lane };
  });
  return placed.map(({ attempt, from, to, lane }) => ({
    key: attempt.id,
    row: worker,
    from,
    to,
    tone: FAILED.has(attempt.state) ? "bad" : (KIND_TONES[attempt.kind] ?? "wait"),
    hatched: FAILED.has(attempt.state) || attempt.finished_at === null,
    lane: [lane / freeFrom.length, (lane + 1) / freeFrom.length],
    attempt,
    seconds: to - from,
  }));
}

/** A span within the whole, at least a second long; null is the whole. */
export function zoom(range: readonly [number, number] | null, span: number): readonly [number, number] {
  if (!range) return [0, span];
  const from = Math.max(0, Math.min(range[0], span - 1));
  return [from, Math.min(Math.max(range[1], from + 1), Math.max(span, from + 1))];
}

/** The bars of which something is within a span. */
export function within(bars: readonly AttemptBar[], [from, to]: readonly [number, number]): AttemptBar[] {
  return bars.filter((bar) => bar.to >= from && bar.from <= to);
}

/** How much of a span each worker was busy with one step at least, from 0 to 1. */
export function busyShare(
  bars: readonly AttemptBar[],
  worker: string,
  [from, to]: readonly [number, number],
): number {
  let busy = 0;
  let until = from;
  for (const bar of bars.filter(({ row }) => row === worker).sort((a, b) => a.from - b.from)) {
    const start = Math.max(until, bar.from);
    const end = Math.min(to, bar.to);
    if (end > start) busy += end - start;
    until = Math.max(until, bar.to);
  }
  return to > from ? busy / (to - from) : 0;
}
