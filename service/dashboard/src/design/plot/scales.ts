/** What an axis says and where a value stands on it. Pure; pixels in, pixels out. */

import { ticks as linearTicks } from "d3-array";
import { scaleBand, scaleLinear, scaleLog } from "d3-scale";

interface AxisBase {
  /** With its unit: "Time, µs". */
  label: string;
  /** About how many ticks; by default as many as there is room for. */
  ticks?: number;
}

/** `linear` and `log` take numbers, `duration` takes seconds, `band` takes keys and gives each a row or a column. */
export type AxisSpec =
  | (AxisBase & {
      kind: "linear" | "log" | "duration";
      domain: readonly [number, number];
      format?: (value: number) => string;
      /** Ticks at whole numbers alone: between them there is nothing to count. */
      whole?: boolean;
    })
  | (AxisBase & { kind: "band"; domain: readonly string[]; format?: (key: string) => string });

export type Place = number | string;

interface Tick {
  at: number;
  label: string;
}

export interface Scale {
  kind: AxisSpec["kind"];
  ticks: readonly Tick[];
  /** Pixels of a value; of a band, its middle. Outside the domain a value is outside the range. */
  at: (value: Place) => number;
  /** The value at a pixel, kept within the domain; of a band, NaN. */
  invert: (pixel: number) => number;
  /** Pixels of a band's thickness; 0 for numbers. */
  band: number;
  /** Pixels from one band to the next; 0 for numbers. */
  step: number;
}

export function makeScale(spec: AxisSpec, range: readonly [number, number], room: number): Scale {
  const [from, to] = range;
  if (spec.kind === "band") {
    const scale = scaleBand<string>([...spec.domain], [from, to])
      .paddingInner(0.3)
      .paddingOuter(0.15);
    const middle = (key: Place) => (scale(String(key)) ?? Number.NaN) + scale.bandwidth() / 2;
    return {
      kind: spec.kind,
      ticks: spec.domain.map((key) => ({ at: middle(key), label: spec.format?.(key) ?? key })),
      at: middle,
      invert: () => Number.NaN,
      band: scale.bandwidth(),
      step: scale.step(),
    };
  }
  const domain = spec.kind === "log" ? positive(spec.domain) : widened(spec.domain);
  const scale = (spec.kind === "log" ? scaleLog() : scaleLinear()).domain(domain).range([from, to]);
  const count = spec.ticks ?? Math.max(2, Math.floor(Math.abs(to - from) / room));
  const all =
    spec.kind === "log"
      ? logTicks(domain, count)
      : spec.kind === "duration"
        ? durationTicks(domain, count)
        : linearTicks(domain[0], domain[1], count);
  const values = spec.whole ? all.filter(Number.isInteger) : all;
  const format = spec.format ?? ((value: number) => value.toLocaleString("en-GB"));
  return {
    kind: spec.kind,
    ticks: values.map((value) => ({ at: scale(value), label: format(value) })),
    at: (value) => scale(Number(value)),
    invert: (pixel) => Math.min(domain[1], Math.max(domain[0], scale.invert(pixel))),
    band: 0,
    step: 0,
  };
}

/** The least and the greatest of the values, with `pad` of the span added at both ends; null where there is none. */
export function extent(
  values: Iterable<number | null | undefined>,
  pad = 0,
): readonly [number, number] | null {
  let low = Number.POSITIVE_INFINITY;
  let high = Number.NEGATIVE_INFINITY;
  for (const value of values) {
    if (value === null || value === undefined || !Number.isFinite(value)) continue;
    low = Math.min(low, value);
    high = Math.max(high, value);
  }
  if (low > high) return null;
  const more = (high - low) * pad;
  return [low - more, high + more];
}

/** The same for a logarithmic axis: only what is positive counts, and `factor` is left free at both ends. */
export function logExtent(
  values: Iterable<number | null | undefined>,
  factor = 1.25,
): readonly [number, number] | null {
  const positiveOnly = [...values].filter(
    (value): value is number => Number.isFinite(value) && Number(value) > 0,
  );
  const found = extent(positiveOnly);
  return found && [found[0] / factor, found[1] * factor];
}

const MANTISSAS = [[1, 2, 3, 4, 5, 6, 7, 8, 9], [1, 2, 5], [1, 3], [1]];

/** Round values of a logarithmic axis: as many as fit `count`; over less than a decade, evenly spaced ones. */
export function logTicks([low, high]: readonly [number, number], count: number): number[] {
  const first = Math.floor(Math.log10(low));
  const last = Math.ceil(Math.log10(high));
  const decades = Array.from({ length: last - first + 1 }, (_, at) => first + at);
  for (const mantissas of MANTISSAS) {
    const values = decades
      .flatMap((power) => mantissas.map((mantissa) => Number(`${mantissa}e${power}`)))
      .filter((value) => value >= low && value <= high);
    if (values.length > Math.max(2, count)) continue;
    return values.length >= 2 ? values : linearTicks(low, high, count);
  }
  const step = Math.ceil(decades.length / Math.max(1, count));
  return decades
    .filter((power) => power % step === 0)
    .map((power) => Number(`1e${power}`))
    .filter((value) => value >= low && value <= high);
}

const STEPS_S = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400];

/** Seconds at which a clock is read: multiples of 5 s, 1 min, 15 min and so on, at most `count`. */
export function durationTicks([low, high]: readonly [number, number], count: number): number[] {
  const span = (high - low) / Math.max(1, count);
  if (span < 0.5) return linearTicks(low, high, count);
  const step = STEPS_S.find((seconds) => seconds >= span) ?? Math.ceil(span / 86400) * 86400;
  const first = Math.ceil(low / step);
  return Array.from(
    { length: Math.max(0, Math.floor(high / step) - first + 1) },
    (_, at) => (first + at) * step,
  );
}

/** A domain of one value has no scale; it is given some room. */
function widened([low, high]: readonly [number, number]): [number, number] {
  return high > low ? [low, high] : [low, low + (Math.abs(low) || 1)];
}

function positive([low, high]: readonly [number, number]): [number, number] {
  const top = high > 0 ? high : 1;
  const bottom = low > 0 ? low : top / 1000;
  return top > bottom ? [bottom, top] : [bottom / 2, bottom * 2];
}
