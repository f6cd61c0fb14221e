/** Times of contenders, and what may be said of them. Pure. */

import type { ReportDocument, Timing, WorkloadReport } from "../../../api/node";
import { format } from "../../../design";
import { contenderName } from "./sentence";

/** What a ratio shows, in words: an interval that holds 1 shows no difference. */
export function comparison({ contender, speedup, speedup_ci95 }: Timing): string {
  const than = contenderName(contender);
  if (speedup === null) return `Not compared with ${than}.`;
  const [low, high] = speedup_ci95 ?? [];
  const figure = format.speedup(speedup, speedup_ci95);
  if (low === undefined || high === undefined) return `${figure} as fast as ${than}; no interval is known.`;
  if (low > 1) return `${figure} as fast as ${than}: shown to be faster.`;
  if (high < 1) return `${figure} as fast as ${than}: shown to be slower.`;
  return `${figure} as fast as ${than}: the interval holds 1, so no difference is shown.`;
}

/** What the clock reads where nothing is run, part of every time; null where the judge did not say. */
export function exchangeUs(device: ReportDocument["device"]): number | null {
  return typeof device.exchange_us === "number" ? device.exchange_us : null;
}

const MUCH_LONGER = 5;

/** Whether the candidate's time is so short that the way to it and back is a large part of it. */
export function isShort(workload: WorkloadReport, exchange: number | null): boolean {
  const own = workload.timings.find(({ contender }) => contender === "candidate");
  return exchange !== null && own !== undefined && own.time_us < MUCH_LONGER * exchange;
}

const WIDE = 12;

/** From the least to the greatest of what was measured, and whether that is wide enough for a logarithmic axis. */
export function timeDomain(timings: readonly Timing[]): { kind: "linear" | "log"; domain: [number, number] } {
  const values = timings.flatMap(({ time_us, ci95, samples }) => [time_us, ...(ci95 ?? []), ...samples]);
  const positive = values.filter((value) => value > 0);
  const [low, high] = [Math.min(...positive), Math.max(...positive)];
  if (positive.length === 0) return { kind: "linear", domain: [0, 1] };
  return high / low > WIDE
    ? { kind: "log", domain: [low / 1.2, high * 1.2] }
    : { kind: "linear", domain: [0, high * 1.05] };
}

/** A figure as it stands at an axis: without zeros that say nothing. */
export function tick(text: string): string {
  return text.replace(/(\.\d*?)0+(?=\s|$)/, "$1").replace(/\.(?=\s|$)/, "");
}
