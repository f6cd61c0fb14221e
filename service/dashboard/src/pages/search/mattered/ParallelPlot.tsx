import { useMemo, useState } from "react";
import { Button, format, Untrusted, visible } from "../../../design";
import { type AxisSpec, Plot, Strands, type Target, Uprights } from "../../../design/plot";
import styles from "./Mattered.module.css";
import { SummaryTip, stepItems } from "./SummaryTip";
import { type Configuration, type StepScale, shiftOf, summarise, type ValueSummary } from "./swept";

/** With a space, which no tunable has in its name: one may be called Time. */
const TIME = "the time";
const LEAST_SPAN = 1.01;
const MOST_ROWS = 100;
/** Of an axis: lines through one value lie side by side, so that their colours are seen. */
const SPREAD = 0.06;
const HEIGHT = 260;

interface ValueTarget extends Target {
  name: string;
  summary: ValueSummary;
}

/** Every configuration as a line over its values to its time; a value that is chosen leaves the lines through it. */
export function ParallelPlot({
  names,
  configurations,
  steps,
}: {
  names: readonly string[];
  configurations: readonly Configuration[];
  steps: StepScale;
}) {
  const [only, setOnly] = useState<{ name: string; value: number } | null>(null);
  const axes = useMemo(
    () => names.map((name) => ({ name, values: summarise(configurations, name) })),
    [names, configurations],
  );
  const [least, most] = useMemo(() => spanOf(configurations), [configurations]);
  const x = useMemo<AxisSpec>(
    () => ({
      kind: "band",
      domain: [...names, TIME],
      label: "",
      format: (key) => (key === TIME ? "Time" : visible(key)),
    }),
    [names],
  );
  const strands = useMemo(() => {
    const places = axes.map(({ name, values }) => ({ name, at: placesOf(values) }));
    const lines = configurations.map((one, index) => ({
      passes: only === null || one.values[only.name] === only.value,
      tone: steps.of(one.ratio),
      points: [
        ...places.map(({ name, at }) => ({
          x: name,
          y: (at.get(one.values[name] ?? Number.NaN) ?? 0) + SPREAD * shiftOf(index),
        })),
        { x: TIME, y: timePlace(one.ratio, least, most) },
      ],
    }));
    // The fastest are drawn last, above the others.
    const groups = [...steps.steps].reverse().map(({ tone }) => ({
      tone,
      strands: lines.flatMap((line) => (line.passes && line.tone === tone ? [line.points] : [])),
    }));
    return { groups, behind: lines.flatMap(({ passes, points }) => (passes ? [] : [points])) };
  }, [axes, configurations, only, steps, least, most]);
  const targets = axes.flatMap(({ name, values }) => {
    const at = placesOf(values);
    return values.map(
      (summary): ValueTarget => ({
        key: `${name}=${summary.value}`,
        x: name,
        y: at.get(summary.value) ?? 0,
        name,
        summary,
      }),
    );
  });
  const fastest = useMemo(
    () =>
      configurations
        .filter(({ values }) => only === null || values[only.name] === only.value)
        .sort((a, b) => a.ratio - b.ratio || a.candidate.seq - b.candidate.seq)
        .slice(0, MOST_ROWS),
    [configurations, only],
  );
  return (
    <Plot<ValueTarget>
      title="Parallel coordinates"
      desc={`${format.count(configurations.length)} configurations over ${names.map(visible).join(", ")}, to the time over that of the chosen one: at most ${format.ratio(most)}.${
        only ? ` Only those with ${visible(only.name)}=${only.value} are drawn in colour.` : ""
      }`}
      actions={
        only ? (
          <Button kind="quiet" onClick={() => setOnly(null)}>
            {visible(only.name)}={only.value}: show all
          </Button>
        ) : (
          <span className={styles.hint}>Choose a value to keep the lines through it.</span>
        )
      }
      x={x}
      y={Y}
      height={HEIGHT}
      legend={stepItems(steps)}
      targets={targets}
      tip={({ name, summary }) => <SummaryTip title={`${name}=${summary.value}`} {...summary} />}
      onSelect={({ name, summary: { value } }) =>
        setOnly((old) => (old?.name === name && old.value === value ? null : { name, value }))
      }
      table={{
        columns: [
          ...names.map((name) => ({ header: visible(name), numeric: true })),
          {
            header: `Time${configurations.length > MOST_ROWS ? `, the fastest ${MOST_ROWS}` : ""}`,
            numeric: true,
          },
          { header: "Candidate" },
        ],
        rows: fastest.map(({ values, ratio, candidate }) => [
          ...names.map((name) => format.count(values[name])),
          format.ratio(ratio),
          <Untrusted key="candidate" text={`#${candidate.seq} ${candidate.title ?? ""}`} />,
        ]),
      }}
    >
      {strands.behind.length > 0 && <Strands strands={strands.behind} tone="border" faint />}
      {strands.groups.map(({ tone, strands: some }) => (
        <Strands key={tone} strands={some} tone={tone} />
      ))}
      <Uprights
        axes={[
          ...axes.map(({ name, values }) => ({ key: name, ticks: ticksOf(values) })),
          {
            key: TIME,
            ticks: [0, 0.5, 1].map((at) => ({ at, label: format.ratio(least * (most / least) ** at) })),
          },
        ]}
      />
    </Plot>
  );
}

const Y: AxisSpec = { kind: "linear", domain: [-0.03, 1.03], label: "", ticks: 0 };

/** Values of a tunable, evenly from the bottom of its axis to the top: they are choices, and no distances. */
function placesOf(values: readonly ValueSummary[]): Map<number, number> {
  const last = values.length - 1;
  return new Map(values.map(({ value }, at) => [value, last > 0 ? at / last : 0.5]));
}

const MOST_TICKS = 12;

function ticksOf(values: readonly ValueSummary[]) {
  const each = Math.ceil(values.length / MOST_TICKS);
  return [...placesOf(values)]
    .filter((_, at) => at % each === 0)
    .map(([value, at]) => ({ at, label: String(value) }));
}

/** The least and the greatest ratio, 1 between them: a chosen one that was timed again may not be the fastest. */
function spanOf(configurations: readonly Configuration[]): [number, number] {
  return configurations.reduce<[number, number]>(
    ([low, high], { ratio }) => [Math.min(low, ratio), Math.max(high, ratio)],
    [1, LEAST_SPAN],
  );
}

function timePlace(ratio: number, least: number, most: number): number {
  return Math.log(ratio / least) / Math.log(most / least);
}
