import { useMemo, useState } from "react";
import { format, visible } from "../../design";
import { type AxisSpec, Bars, Intervals, Plot, Rule, type Target } from "../../design/plot";
import { tick } from "../search/node/timing";
import { Choice } from "../search/progress/Choice";
import {
  type Measure,
  measuresOf,
  type TechniqueBar,
  type TechniqueGroup,
  techniqueBars,
  toneAt,
} from "./curves";

const LABELS: Readonly<Record<Measure, string>> = {
  tried: "Tried",
  success: "Success",
  gain: "Gain",
  cost: "Cost",
  time: "Judging",
};
const AXIS: Readonly<Record<Measure, string>> = {
  tried: "Share of the search's candidates, %",
  success: "Share of its candidates that was accepted, %",
  gain: "Speed-up over what it was built on: median and range",
  cost: "Code for each accepted candidate, US dollars",
  time: "Judging for each accepted candidate, seconds",
};
const SHOW: Readonly<Record<Measure, (value: number) => string>> = {
  tried: format.percent,
  success: format.percent,
  gain: format.ratio,
  cost: format.money,
  time: format.duration,
};
/** At an axis, where that is shorter than the figure in full. */
const TICK: Readonly<Partial<Record<Measure, (value: number) => string>>> = {
  tried: (share) => tick(format.percent(share)),
  success: (share) => tick(format.percent(share)),
  gain: (ratio) => `${Number(ratio.toPrecision(3))}x`,
};
const LANE = 14;
const LEAST_ROW = 48;

interface BarTarget extends Target {
  bar: TechniqueBar;
}

/** What each technique came to, in one search or in several beside each other. */
export function TechniquesPlot({ title, groups }: { title: string; groups: readonly TechniqueGroup[] }) {
  const measures = useMemo(() => measuresOf(groups), [groups]);
  const [chosen, setMeasure] = useState<Measure>("success");
  const measure = measures.includes(chosen) ? chosen : "success";
  const { rows, bars, kind, domain } = useMemo(() => techniqueBars(groups, measure), [groups, measure]);
  const x = useMemo<AxisSpec>(
    () => ({ kind, domain, label: AXIS[measure], format: TICK[measure] ?? SHOW[measure] }),
    [kind, domain, measure],
  );
  const y = useMemo<AxisSpec>(
    () => ({ kind: "band", domain: rows, label: "Technique", format: format.words }),
    [rows],
  );
  const targets = useMemo<BarTarget[]>(
    () =>
      bars.map((bar) => ({
        key: bar.key,
        x: [bar.from, bar.to] as const,
        y: bar.row,
        ...(bar.lane && { lane: bar.lane }),
        bar,
      })),
    [bars],
  );
  if (rows.length === 0) return null;
  const several = groups.length > 1;
  const name = (at: number) => visible(groups[at]?.label ?? "");
  return (
    <Plot<BarTarget>
      title={title}
      desc={`${rows.length} techniques. ${AXIS[measure]}: ${bars
        .map(({ row, at, value }) => [several && name(at), visible(format.words(row)), SHOW[measure](value)])
        .map((words) => words.filter(Boolean).join(" "))
        .join(", ")}.`}
      actions={
        <Choice label="Measure" options={measures} labels={LABELS} value={measure} onChange={setMeasure} />
      }
      x={x}
      y={y}
      height={rows.length * Math.max(LEAST_ROW, LANE * groups.length + 14)}
      {...(several && { legend: groups.map((_, at) => ({ label: name(at), tone: toneAt(at) })) })}
      targets={targets}
      tip={({ bar: { at, value, tried, row, document: one } }) => (
        <>
          <strong>
            {several ? name(at) : visible(format.words(row))}: {SHOW[measure](value)}
          </strong>
          <span>
            {one.accepted} of {one.candidates} accepted, {one.improved} faster than what they were built on;{" "}
            {format.percent(tried)} of the search
          </span>
          <span>
            gain {format.ratio(one.median_gain)}
            {one.gain_range && ` (${one.gain_range.map(format.ratio).join(" to ")})`}, best{" "}
            {format.ratio(one.best_score)}
          </span>
          <span>
            code {format.money(one.cost_usd)}, judged for {format.duration(one.judge_s)}
          </span>
        </>
      )}
      table={{
        columns: [
          { header: "Technique" },
          ...(several ? [{ header: "Search" }] : []),
          { header: "Candidates", numeric: true },
          { header: "Accepted", numeric: true },
          { header: "Faster than its base", numeric: true },
          { header: "Median gain", numeric: true },
          { header: "Range of gains", numeric: true },
          { header: "Best", numeric: true },
          { header: "Tokens of code", numeric: true },
          { header: "Cost of code", numeric: true },
          { header: "Judged for", numeric: true },
        ],
        rows: rows.flatMap((technique) =>
          groups.flatMap(({ techniques }, at) =>
            techniques
              .filter((one) => one.technique === technique)
              .map((one) => [
                visible(format.words(technique)),
                ...(several ? [name(at)] : []),
                format.count(one.candidates),
                format.count(one.accepted),
                format.count(one.improved),
                format.ratio(one.median_gain),
                one.gain_range?.map(format.ratio).join(" to ") ?? format.NONE,
                format.ratio(one.best_score),
                format.count(one.tokens),
                format.money(one.cost_usd),
                format.duration(one.judge_s),
              ]),
          ),
        ),
      }}
    >
      {measure === "gain" ? (
        <>
          <Rule x={1} label="no gain" />
          <Intervals
            marks={bars.map(({ key, row, from, to, value, tone, lane }) => ({
              key,
              at: row,
              low: from,
              high: to,
              value,
              ...(tone && { tone }),
              ...(lane && { lane }),
            }))}
          />
        </>
      ) : (
        <Bars bars={several ? bars : bars.map((bar) => ({ ...bar, label: SHOW[measure](bar.value) }))} />
      )}
    </Plot>
  );
}
