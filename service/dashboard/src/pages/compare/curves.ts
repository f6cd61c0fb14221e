/** From a comparison to what its plots draw. Pure. */

import type { ComparedSearch, TechniqueDocument } from "../../api/comparison";
import { type BarMark, type DotMark, extent, type PlotTone } from "../../design/plot";
import { type Axis, onAxis } from "../search/progress/axes";

const AXES = ["candidates", "cost", "time"] as const;
export type CurvePoint = ComparedSearch["curve"][number];

/** A search keeps its number and its colour in every part of the page. */
export const TONES: readonly PlotTone[] = ["accent", "warn", "ok", "dup", "bad", "wait", "text", "muted"];

export function toneAt(at: number): PlotTone {
  return TONES[at % TONES.length] ?? "accent";
}

/** A search in a few words: its number, and its name or op. */
export function labelOf({ search }: ComparedSearch, at: number): string {
  return `${at + 1} ${search.name ?? search.model_name ?? search.op_name}`;
}

/** The axes that can be drawn: where the price of one search is not known, cost is none; nor where all is free. */
export function axesOf(searches: readonly ComparedSearch[]): Axis[] {
  const points = searches.flatMap(({ curve }) => curve);
  const priced = points.every(({ cost_usd }) => cost_usd !== null) && points.some(({ cost_usd }) => cost_usd);
  return AXES.filter((axis) => axis !== "cost" || priced);
}

export interface Curve {
  tone: PlotTone;
  steps: { x: number; y: number }[];
  dots: (DotMark & { x: number; y: number; point: CurvePoint; at: number })[];
}

export function curvesOf(searches: readonly ComparedSearch[], axis: Axis) {
  const curves = searches.map(({ curve }, at): Curve => {
    const placed = curve.flatMap((point) => {
      const x = onAxis(point, axis);
      return x === null ? [] : [{ x, y: point.score, point }];
    });
    return {
      tone: toneAt(at),
      steps: placed.map(({ x, y }) => ({ x, y })),
      dots: placed.map(({ x, y, point }, index) => {
        const last = index === placed.length - 1;
        return {
          key: `${at}:${index}`,
          x,
          y,
          point,
          at,
          tone: toneAt(at),
          shape: point.node_id === null ? "square" : point.verified ? "diamond" : "ring",
          radius: point.node_id === null ? 2 : 4,
          ...(last && { label: String(at + 1) }),
        };
      }),
    };
  });
  const steps = curves.flatMap((curve) => curve.steps);
  const [, right] = extent(steps.map(({ x }) => x)) ?? [0, 1];
  const [, top] = extent([...steps.map(({ y }) => y), 1]) ?? [0, 1];
  return { curves, xDomain: [0, right || 1] as const, yDomain: [0, top * 1.1] as const };
}

export const MEASURES = ["tried", "success", "gain", "cost", "time"] as const;
export type Measure = (typeof MEASURES)[number];

/** A search, or what stands for one: its name in the legend, and what its techniques led to. */
export interface TechniqueGroup {
  label: string;
  techniques: readonly TechniqueDocument[];
}

/** The measures that can be drawn: where nothing was paid, or the price is known of no technique, cost is none. */
export function measuresOf(groups: readonly Pick<TechniqueGroup, "techniques">[]): Measure[] {
  const paid = groups.some(({ techniques }) => techniques.some(({ cost_usd }) => cost_usd));
  return MEASURES.filter((measure) => measure !== "cost" || paid);
}

/**
 * A technique's measure in one search; null where it is not known. Tried is a share of all of the search's candidates,
 * success one of the technique's own, gain a ratio, cost dollars and time seconds, both for an accepted candidate.
 */
export function measureOf(one: TechniqueDocument, measure: Measure, candidates: number): number | null {
  switch (measure) {
    case "tried":
      return candidates > 0 ? one.candidates / candidates : null;
    case "success":
      return one.candidates > 0 ? one.accepted / one.candidates : null;
    case "gain":
      return one.median_gain;
    case "cost":
      return one.accepted > 0 && one.cost_usd !== null ? one.cost_usd / one.accepted : null;
    case "time":
      return one.accepted > 0 ? one.judge_s / one.accepted : null;
  }
}

export interface TechniqueBar extends BarMark {
  at: number;
  value: number;
  /** Of the candidates of its search, the share that was of this technique. */
  tried: number;
  document: TechniqueDocument;
}

/** Gains apart by more than this factor are read on a logarithmic axis. */
const WIDE = 20;

/** A row for each technique, the most tried first, and in it a bar for each search that has the measure. A gain's bar
 * goes from the least to the greatest. */
export function techniqueBars(groups: readonly Pick<TechniqueGroup, "techniques">[], measure: Measure) {
  const tried = new Map<string, number>();
  for (const { techniques } of groups)
    for (const { technique, candidates } of techniques)
      tried.set(technique, (tried.get(technique) ?? 0) + candidates);
  const rows = [...tried].sort(([a, x], [b, y]) => y - x || (a < b ? -1 : 1)).map(([technique]) => technique);
  const lanes = groups.length;
  const bars = groups.flatMap(({ techniques }, at) => {
    const all = techniques.reduce((sum, { candidates }) => sum + candidates, 0);
    return techniques.flatMap((document): TechniqueBar[] => {
      const value = measureOf(document, measure, all);
      if (value === null) return [];
      const [from = value, to = value] = measure === "gain" ? (document.gain_range ?? []) : [0, value];
      return [
        {
          key: `${document.technique}:${at}`,
          row: document.technique,
          from,
          to,
          tone: toneAt(at),
          lane: [at / lanes, (at + 1) / lanes],
          at,
          value,
          tried: document.candidates / all,
          document,
        },
      ];
    });
  });
  return { rows, bars, ...scaleOf(bars, measure) };
}

function scaleOf(bars: readonly TechniqueBar[], measure: Measure) {
  const whole = measure === "success" || measure === "gain" ? 1 : 0;
  const [low, high] = extent([...bars.flatMap(({ from, to }) => [from, to]), whole]) ?? [0, 1];
  if (measure === "gain" && low > 0 && high / low > WIDE)
    return { kind: "log" as const, domain: [low / 1.1, high * 1.1] as const };
  return { kind: "linear" as const, domain: [0, (measure === "gain" ? 1.05 : 1) * high || 1] as const };
}
