import { useMemo } from "react";
import type { ProgressDocument } from "../../../api/progress";
import { format } from "../../../design";
import { type AxisSpec, Bars, Plot } from "../../../design/plot";
import { asks, gateBars, inWords } from "./gates";
import { toneOfVerdict } from "./series";

const ROW = 48;

/** Where candidates stand: how many each gate let through, refused or set aside. */
export function GatesPlot({ gates }: { gates: ProgressDocument["gates"] }) {
  const { rows, bars, most } = useMemo(() => gateBars(gates), [gates]);
  const x = useMemo<AxisSpec>(
    () => ({
      kind: "linear",
      domain: [0, most],
      label: "Candidates",
      format: format.count,
      ticks: Math.min(most, 8),
    }),
    [most],
  );
  const y = useMemo<AxisSpec>(
    () => ({ kind: "band", domain: rows, label: "Gate", format: format.words }),
    [rows],
  );
  const targets = useMemo(
    () =>
      gates.map((gate, at) => ({
        key: `${gate.gate}:${gate.verdict}`,
        x: [bars[at]?.from ?? 0, bars[at]?.to ?? 0] as const,
        y: gate.gate,
        gate,
      })),
    [gates, bars],
  );
  if (gates.length === 0) return null;
  const verdicts = [...new Set(gates.map(({ verdict }) => verdict))];
  return (
    <Plot
      title="Verdicts by gate"
      desc={inWords(gates)}
      x={x}
      y={y}
      height={rows.length * ROW}
      legend={verdicts.map((verdict) => ({ label: format.words(verdict), tone: toneOfVerdict(verdict) }))}
      targets={targets}
      tip={({ gate: { gate, verdict, count } }) => (
        <>
          <strong>
            {count} {format.words(verdict)}
          </strong>
          <span>
            {format.words(gate)}
            {asks(gate) && `: ${asks(gate)}`}
          </span>
        </>
      )}
      table={{
        columns: [
          { header: "Gate" },
          { header: "What it asks" },
          { header: "Verdict" },
          { header: "Candidates", numeric: true },
        ],
        rows: gates.map(({ gate, verdict, count }) => [
          format.words(gate),
          asks(gate) ?? format.NONE,
          format.words(verdict),
          format.count(count),
        ]),
      }}
    >
      <Bars bars={bars} />
    </Plot>
  );
}
