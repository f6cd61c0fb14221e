/** From the sweeps of a search to what their plots draw. Pure. */

import type { SweptCandidate } from "../../../api/mattered";
import { STEPS } from "../../../design/plot";

type Step = (typeof STEPS)[number];

/** One configuration of one candidate; `ratio` is its time over that of the one chosen there. */
export interface Configuration {
  candidate: SweptCandidate;
  values: Readonly<Record<string, number>>;
  ratio: number;
}

/** Candidates with the same tunables: their configurations can be drawn on one set of axes. */
export interface TunableSet {
  key: string;
  names: string[];
  candidates: SweptCandidate[];
  configurations: Configuration[];
}

/** The sets of tunables, the one with the most configurations first; names in the order given, others behind. */
export function setsOf(sweeps: readonly SweptCandidate[], order: readonly string[]): TunableSet[] {
  const sets = new Map<string, TunableSet>();
  const rank = (name: string) => (order.includes(name) ? order.indexOf(name) : order.length);
  for (const candidate of sweeps) {
    const names = Object.keys(candidate.chosen).sort((a, b) => rank(a) - rank(b) || (a < b ? -1 : 1));
    const key = names.join(" ");
    const set = sets.get(key) ?? { key, names, candidates: [], configurations: [] };
    sets.set(key, set);
    set.candidates.push(candidate);
    for (const one of candidate.configurations) set.configurations.push({ candidate, ...one });
  }
  return [...sets.values()].sort((a, b) => b.configurations.length - a.configurations.length);
}

/** What the configurations with one value came to. */
export interface ValueSummary {
  value: number;
  count: number;
  /** The geometric mean of their ratios: logarithms are what a share of the variance is of. */
  mean: number;
  best: Configuration;
}

/** The different values of a tunable, rising, each with what its configurations came to. */
export function summarise(configurations: readonly Configuration[], name: string): ValueSummary[] {
  return summaries(configurations, (one) => one.values[name] ?? Number.NaN).sort((a, b) => a.value - b.value);
}

function summaries<Key>(configurations: readonly Configuration[], keyOf: (one: Configuration) => Key) {
  const groups = new Map<Key, Configuration[]>();
  for (const one of configurations) {
    const group = groups.get(keyOf(one));
    if (group) group.push(one);
    else groups.set(keyOf(one), [one]);
  }
  return [...groups].map(([value, group]) => ({
    value,
    count: group.length,
    mean: Math.exp(group.reduce((sum, { ratio }) => sum + Math.log(ratio), 0) / group.length),
    best: group.reduce((least, one) => (one.ratio < least.ratio ? one : least)),
  }));
}

export interface Cell extends Omit<ValueSummary, "value"> {
  x: string;
  y: string;
}

/** What the configurations with each pair of values of two tunables came to; pairs that were not timed are left out. */
export function cellsOf(configurations: readonly Configuration[], across: string, down: string): Cell[] {
  return summaries(configurations, (one) => `${one.values[across]} ${one.values[down]}`).map(
    ({ value, ...rest }) => {
      const [x = "", y = ""] = value.split(" ");
      return { x, y, ...rest };
    },
  );
}

/** Five steps of equal factors from 1 to the greatest ratio; all of one step where there is hardly a difference. */
export interface StepScale {
  of: (ratio: number) => Step;
  /** Each step that there is, with the ratios at its ends. */
  steps: { tone: Step; from: number; to: number }[];
}

const ALIKE = 1.01;

export function stepsOf(ratios: readonly number[]): StepScale {
  const most = ratios.reduce((greatest, ratio) => Math.max(greatest, ratio), 1);
  if (most < ALIKE) return { of: () => STEPS[0], steps: [{ tone: STEPS[0], from: 1, to: most }] };
  const width = Math.log(most) / STEPS.length;
  const at = (ratio: number) => Math.min(STEPS.length - 1, Math.max(0, Math.floor(Math.log(ratio) / width)));
  return {
    of: (ratio) => STEPS[at(ratio)] ?? STEPS[0],
    steps: STEPS.map((tone, index) => ({
      tone,
      from: Math.exp(index * width),
      to: Math.exp((index + 1) * width),
    })),
  };
}

/** From -0.4 to 0.4: dots of one value side by side, spread evenly and each time in the same way. */
export function shiftOf(index: number): number {
  return ((index * 0.618034) % 1) * 0.8 - 0.4;
}

/** `BLOCK=64, STAGES=2`. */
export function named(values: Readonly<Record<string, number>>): string {
  return Object.entries(values)
    .map(([name, value]) => `${name}=${value}`)
    .join(", ");
}
