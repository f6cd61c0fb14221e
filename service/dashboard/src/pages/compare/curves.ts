/** From a comparison to what its plots draw. Pure. */

import type { ComparedSearch, TechniqueDocument } from "../../api/comparison";
import { type BarMark, type DotMark, extent, type PlotTone } from "../../design/plot";

export const AXES = ["candidates", "cost", "time"] as const;
export type Axis = (typeof AXES)[number];
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

function onAxis(point: CurvePoint, axis: Axis): number | null {
  if (axis === "time") return point.elapsed_s;
  return axis === "cost" ? point.cost_usd : point.candidates;
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

export const MEASURES = ["success", "gain", "cost"] as const;
export type Measure = (typeof MEASURES)[number];

/** A technique's measure in one search; null where it is not known. Success is a share, gain a ratio, cost dollars. */
export function measureOf(one: TechniqueDocument, measure: Measure): number | null {
  if (measure === "gain") return one.median_gain ?? null;
  if (measure === "cost")
    return one.accepted > 0 && one.cost_usd != null ? one.cost_usd / one.accepted : null;
  return one.candidates > 0 ? one.accepted / one.candidates : null;
}

export interface TechniqueBar extends BarMark {
  at: number;
  value: number;
  document: TechniqueDocument;
}

/** A row for each technique, the most tried first, and in it a bar for each search that has the measure. */
export function techniqueBars(searches: readonly ComparedSearch[], measure: Measure) {
  const tried = new Map<string, number>();
  for (const { techniques } of searches)
    for (const { technique, candidates } of techniques)
      tried.set(technique, (tried.get(technique) ?? 0) + candidates);
  const rows = [...tried].sort(([a, x], [b, y]) => y - x || (a < b ? -1 : 1)).map(([technique]) => technique);
  const lanes = searches.length;
  const bars = searches.flatMap(({ techniques }, at) =>
    techniques.flatMap((document): TechniqueBar[] => {
      const value = measureOf(document, measure);
      if (value === null) return [];
      const lane = [at / lanes, (at + 1) / lanes] as const;
      return [
        {
          key: `${document.technique}:${at}`,
          row: document.technique,
          from: 0,
          to: value,
          tone: toneAt(at),
          lane,
          at,
          value,
          document,
        },
      ];
    }),
  );
  const most = Math.max(measure === "cost" ? 0 : 1, ...bars.map(({ value }) => value));
  return { rows, bars, most: most || 1 };
}
