import type { ProgressDocument } from "../../../api/progress";
import { format } from "../../../design";
import type { BarMark } from "../../../design/plot";
import { toneOfVerdict } from "./series";

type GateCount = ProgressDocument["gates"][number];

/** What each gate asks of a candidate. */
const ASKS: Readonly<Record<string, string>> = {
  gate: "only what is allowed in its code",
  compile: "compiles",
  screen: "right on the target workload, and a short timing",
  verify: "right on every workload and input family",
  time: "timed in full beside the baselines",
  physics: "no faster than the device can be",
};

export function asks(gate: string): string | null {
  return ASKS[gate] ?? null;
}

/** Counts as bars from left to right in the row of their gate. */
export function gateBars(gates: readonly GateCount[]): { rows: string[]; bars: BarMark[]; most: number } {
  const ends = new Map<string, number>();
  const bars = gates.map(({ gate, verdict, count }) => {
    const from = ends.get(gate) ?? 0;
    ends.set(gate, from + count);
    const alone = gates.filter((one) => one.gate === gate).length === 1;
    return {
      key: `${gate}:${verdict}`,
      row: gate,
      from,
      to: from + count,
      tone: toneOfVerdict(verdict),
      ...(alone && { label: format.count(count) }), // of two, the number of one would lie on the other
    };
  });
  return { rows: [...ends.keys()], bars, most: Math.max(1, ...ends.values()) };
}

/** The counts in words: "3 rejected at compile". */
export function inWords(gates: readonly GateCount[]): string {
  return gates.map(({ gate, verdict, count }) => `${count} ${verdict} at ${gate}`).join(", ");
}
