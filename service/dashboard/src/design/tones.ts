export type Tone = "ok" | "bad" | "warn" | "wait" | "dup" | "accent";

const TONES: Readonly<Record<string, Tone>> = {
  accepted: "ok",
  verified: "ok",
  passed: "ok",
  succeeded: "ok",
  finished: "ok",
  answered: "ok",
  alive: "ok",
  ready: "ok",
  done: "ok",
  live: "ok",
  working: "accent",
  idle: "ok",
  draining: "warn",
  drained: "dup",
  rejected: "bad",
  failed: "bad",
  error: "bad",
  dead: "bad",
  silent: "bad",
  quarantined: "warn",
  ambiguous: "warn",
  paused: "warn",
  expired: "warn",
  reconnecting: "warn",
  running: "accent",
  open: "accent",
  duplicate: "dup",
};

/** The colour of a verdict or state; one that is not known waits. */
export function toneOf(state: string): Tone {
  return TONES[state] ?? "wait";
}
