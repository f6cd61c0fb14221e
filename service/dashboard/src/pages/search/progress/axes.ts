/** The axes of plots of the best so far: of one search, and of several beside each other. Pure. */

import { format } from "../../../design";
import type { AxisSpec } from "../../../design/plot";

export type Axis = "candidates" | "time" | "cost";

export const LABELS: Readonly<Record<Axis, string>> = {
  candidates: "Candidates",
  time: "Time",
  cost: "Cost",
};

/** What a point is measured against; `since`: from when time is counted. */
export function xSpec(axis: Axis, domain: readonly [number, number], since: string): AxisSpec {
  if (axis === "time") return { kind: "duration", domain, label: since, format: format.duration };
  if (axis === "cost")
    return { kind: "linear", domain, label: "Spent at the model, US dollars", format: format.money };
  return { kind: "linear", domain, label: "Candidates judged", format: format.count, whole: true };
}

export function speedupSpec(kind: "linear" | "log", domain: readonly [number, number]): AxisSpec {
  return {
    kind,
    domain,
    label: "Speed-up over the fastest baseline",
    format: (value) => `${Number(value.toPrecision(3))}x`,
  };
}

/** Where a point stands on an axis; null where its cost is not known. */
export function onAxis(
  point: { candidates: number; elapsed_s: number; cost_usd: number | null },
  axis: Axis,
): number | null {
  if (axis === "time") return point.elapsed_s;
  return axis === "cost" ? point.cost_usd : point.candidates;
}
