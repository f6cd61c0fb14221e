import { useMemo, useState } from "react";
import type { ComparedSearch } from "../../api/comparison";
import { format, visible } from "../../design";
import { type AxisSpec, Bars, Plot, Rule, type Target } from "../../design/plot";
import { Choice } from "../search/progress/Choice";
import { labelOf, MEASURES, type Measure, type TechniqueBar, techniqueBars, toneAt } from "./curves";

const LABELS: Readonly<Record<Measure, string>> = { success: "Success", gain: "Gain", cost: "Cost" };
const AXIS: Readonly<Record<Measure, string>> = {
  success: "Share of candidates that was accepted",
  gain: "Median speed-up over what they were built on",
  cost: "Dollars of code for each accepted candidate",
};
const SHOW: Readonly<Record<Measure, (value: number) => string>> = {
  success: format.percent,
  gain: format.ratio,
  cost: format.money,
};
const LANE = 14;

interface BarTarget extends Target {
  bar: TechniqueBar;
}

/** What each technique came to, beside each other. */
export function TechniquesPlot({ searches }: { searches: readonly ComparedSearch[] }) {
  const [measure, setMeasure] = useState<Measure>("success");
  const { rows, bars, most } = useMemo(() => techniqueBars(searches, measure), [searches, measure]);
  const x = useMemo<AxisSpec>(
    () => ({ kind: "linear", domain: [0, most], label: AXIS[measure], format: SHOW[measure] }),
    [most, measure],
  );
  const y = useMemo<AxisSpec>(
    () => ({ kind: "band", domain: rows, label: "Technique", format: format.words }),
    [rows],
  );
  const targets = useMemo<BarTarget[]>(
    () => bars.map((bar) => ({ key: bar.key, x: [bar.from, bar.to] as const, y: bar.row, bar })),
    [bars],
  );
  if (rows.length === 0) return null;
  const name = (at: number) => {
    const one = searches[at];
    return one ? visible(labelOf(one, at)) : String(at + 1);
  };
  return (
    <Plot<BarTarget>
      title="Techniques"
      desc={`${rows.length} techniques by ${AXIS[measure].toLowerCase()}.`}
      actions={
        <Choice label="Measure" options={MEASURES} labels={LABELS} value={measure} onChange={setMeasure} />
      }
      x={x}
      y={y}
      height={rows.length * (LANE * searches.length + 14)}
      legend={searches.map((_, at) => ({ label: name(at), tone: toneAt(at) }))}
      targets={targets}
      tip={({ bar: { at, value, document: one } }) => (
        <>
          <strong>
            {name(at)}: {SHOW[measure](value)}
          </strong>
          <span>
            {one.accepted} of {one.candidates} accepted, {one.improved} faster than what they were built on
          </span>
          <span>
            median gain {format.ratio(one.median_gain)}, best {format.ratio(one.best_score)}
          </span>
        </>
      )}
      table={{
        columns: [
          { header: "Technique" },
          { header: "Search" },
          { header: "Candidates", numeric: true },
          { header: "Accepted", numeric: true },
          { header: "Faster than its base", numeric: true },
          { header: "Median gain", numeric: true },
          { header: "Best", numeric: true },
          { header: "Tokens of code", numeric: true },
          { header: "Cost of code", numeric: true },
          { header: "Judged for", numeric: true },
        ],
        rows: rows.flatMap((technique) =>
          searches.flatMap(({ techniques }, at) =>
            techniques
              .filter((one) => one.technique === technique)
              .map((one) => [
                visible(format.words(technique)),
                name(at),
                format.count(one.candidates),
                format.count(one.accepted),
                format.count(one.improved),
                format.ratio(one.median_gain),
                format.ratio(one.best_score),
                format.count(one.tokens),
                format.money(one.cost_usd),
                format.duration(one.judge_s),
              ]),
          ),
        ),
      }}
    >
      {measure === "gain" && <Rule x={1} label="no gain" />}
      <Bars bars={bars} />
    </Plot>
  );
}
