/** The device's measured ceilings, and where contenders stand under them. Pure. */

import type { Roofline, RooflinePoint } from "../../../api/node";
import { format } from "../../../design";
import { type DotShape, logExtent, type PlotTone, type Point } from "../../../design/plot";

export interface Peaks {
  /** By rising footprint. */
  bandwidth: readonly { bytes: number; gbs: number }[];
  /** By falling rate. */
  arithmetic: readonly { name: string; gflops: number }[];
}

/** The peaks that the judge measured, from a verdict's `device`; what is no number is left out. */
export function peaksOf(device: Record<string, unknown>): Peaks {
  const peaks = record(device.peaks);
  const numbers = (value: unknown) =>
    Object.entries(record(value)).filter((entry): entry is [string, number] => Number(entry[1]) > 0);
  return {
    bandwidth: numbers(peaks.bandwidth_gbs)
      .map(([bytes, gbs]) => ({ bytes: Number(bytes), gbs }))
      .sort((a, b) => a.bytes - b.bytes),
    arithmetic: numbers(peaks.gflops)
      .map(([name, gflops]) => ({ name, gflops }))
      .sort((a, b) => b.gflops - a.gflops),
  };
}

function record(value: unknown): Record<string, unknown> {
  return typeof value === "object" && value !== null ? (value as Record<string, unknown>) : {};
}

interface Ceiling {
  key: string;
  label: string;
  points: readonly [Point, Point];
  /** Whether it bounds this workload; the others are the device's at other footprints and in other arithmetics. */
  binds: boolean;
}

export interface Drawing {
  x: readonly [number, number];
  y: readonly [number, number];
  ceilings: readonly Ceiling[];
  /** Where bandwidth gives way to arithmetic for this workload: operations per byte. */
  ridge: number | null;
}

/** Domains and ceilings of a workload's plot; null where its operations are not known, or nothing bounds it. */
export function drawing(roofline: Roofline, peaks: Peaks): Drawing | null {
  const { intensity, bandwidth_gbs: gbs, gflops } = roofline;
  const rates = roofline.points.map((point) => point.gflops ?? null);
  if (!intensity || !rates.some((rate) => rate) || (gbs === null && gflops === null)) return null;
  const ridge = gbs && gflops ? gflops / gbs : null;
  const x = logExtent([intensity, ridge], 6) ?? [intensity / 6, intensity * 6];
  const roof = gflops ?? (gbs ?? 1) * x[1];
  const y = logExtent([...rates, roof, gbs && gbs * intensity], 2) ?? [roof / 100, roof * 2];
  const slopes = uniqueBy([...(gbs ? [gbs] : []), ...peaks.bandwidth.map((peak) => peak.gbs)]);
  const ceilings: Ceiling[] = slopes.map((rate) => {
    const footprint = peaks.bandwidth.find((peak) => peak.gbs === rate)?.bytes;
    const end = Math.min(x[1], gflops ? gflops / rate : x[1]);
    return {
      key: `bandwidth-${rate}`,
      label: `${format.rate(rate * 1e9, "B/s")}${footprint ? ` at ${format.bytes(footprint)}` : ""}`,
      points: [
        { x: x[0], y: rate * x[0] },
        { x: end, y: rate * end },
      ],
      binds: rate === gbs,
    };
  });
  for (const { name, gflops: rate } of peaks.arithmetic) {
    const binds = name === roofline.arithmetic;
    const from = gbs ? Math.max(x[0], rate / gbs) : x[0];
    if (from >= x[1]) continue;
    ceilings.push({
      key: `arithmetic-${name}`,
      label: `${format.rate(rate * 1e9, "FLOP/s")} ${name}`,
      points: [
        { x: from, y: rate },
        { x: x[1], y: rate },
      ],
      binds,
    });
  }
  return { x, y, ceilings, ridge };
}

/** Numbers once each, in their order. */
function uniqueBy(values: readonly number[]): number[] {
  return [...new Set(values)];
}

interface Mark extends Point {
  key: string;
  x: number;
  y: number;
  tone: PlotTone;
  shape: DotShape;
  radius: number;
  label: string;
  point: RooflinePoint;
}

export const LOOKS: Readonly<
  Record<RooflinePoint["kind"], { tone: PlotTone; shape: DotShape; radius: number }>
> = {
  node: { tone: "accent", shape: "circle", radius: 6 },
  parent: { tone: "wait", shape: "diamond", radius: 5 },
  champion: { tone: "ok", shape: "square", radius: 4.5 },
  baseline: { tone: "muted", shape: "ring", radius: 5 },
};

/** The contenders of a workload as marks; the node is drawn last, above the others. */
export function marks(roofline: Roofline, name: (point: RooflinePoint) => string): Mark[] {
  const { intensity } = roofline;
  if (!intensity) return [];
  return roofline.points
    .flatMap((point, at): Mark[] =>
      point.gflops
        ? [
            {
              key: `${point.kind}-${point.contender}-${at}`,
              x: intensity,
              y: point.gflops,
              label: name(point),
              point,
              ...LOOKS[point.kind],
            },
          ]
        : [],
    )
    .sort((a, b) => Number(a.point.kind === "node") - Number(b.point.kind === "node"));
}
