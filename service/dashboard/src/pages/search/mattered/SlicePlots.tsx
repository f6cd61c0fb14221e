import { useMemo } from "react";
import { format, Untrusted, visible } from "../../../design";
import { type AxisSpec, Dots, extent, Line, Plot, Points, Rule, type Target } from "../../../design/plot";
import { useView } from "../view";
import styles from "./Mattered.module.css";
import { StepsLegend, SummaryTip } from "./SummaryTip";
import { type Configuration, type StepScale, shiftOf, summarise, type ValueSummary } from "./swept";

interface SliceProps {
  configurations: readonly Configuration[];
  steps: StepScale;
}

const HEIGHT = 150;
const WIDE = 20;

/** A small plot for each tunable: the time of every configuration against the tunable's value. */
export function SlicePlots({ names, ...slice }: SliceProps & { names: readonly string[] }) {
  return (
    <>
      <h3>Slices</h3>
      <StepsLegend
        steps={slice.steps}
        also={[{ label: "Mean of a value", tone: "text", shape: "diamond" }]}
      />
      <div className={styles.slices}>
        {names.map((name) => (
          <Slice key={name} name={name} {...slice} />
        ))}
      </div>
    </>
  );
}

interface ValueTarget extends Target {
  summary: ValueSummary;
}

function Slice({ name, configurations, steps }: SliceProps & { name: string }) {
  const { setNode } = useView();
  const values = useMemo(() => summarise(configurations, name), [configurations, name]);
  const x = useMemo<AxisSpec>(
    () => ({ kind: "band", domain: values.map(({ value }) => String(value)), label: name }),
    [values, name],
  );
  const y = useMemo<AxisSpec>(() => timeAxis(configurations), [configurations]);
  const points = useMemo(
    () =>
      steps.steps.map(({ tone }) => ({
        tone,
        points: configurations.flatMap(({ values: at, ratio }, index) =>
          steps.of(ratio) === tone ? [{ x: String(at[name]), y: ratio, shift: shiftOf(index) }] : [],
        ),
      })),
    [configurations, steps, name],
  );
  const means = values.map(({ value, mean }) => ({ key: String(value), x: String(value), y: mean }));
  return (
    <Plot<ValueTarget>
      title={`Slice of ${visible(name)}`}
      desc={values
        .map(
          ({ value, count, mean, best }) =>
            `${value}: ${count} configurations, mean ${format.ratio(mean)}, best ${format.ratio(best.ratio)}`,
        )
        .join("; ")}
      x={x}
      y={y}
      height={HEIGHT}
      targets={values.map((summary) => ({
        key: String(summary.value),
        x: String(summary.value),
        y: summary.mean,
        summary,
      }))}
      tip={({ summary }) => <SummaryTip title={`${name}=${summary.value}`} {...summary} />}
      onSelect={({ summary }) => setNode(summary.best.candidate.node_id)}
      table={{
        columns: [
          { header: "Value", numeric: true },
          { header: "Configurations", numeric: true },
          { header: "Mean time", numeric: true },
          { header: "Best time", numeric: true },
          { header: "Best in" },
        ],
        rows: values.map(({ value, count, mean, best }) => [
          format.count(value),
          format.count(count),
          format.ratio(mean),
          format.ratio(best.ratio),
          <Untrusted key="best" text={`#${best.candidate.seq}`} />,
        ]),
      }}
    >
      <Rule y={1} />
      {points.map(({ tone, points: some }) => (
        <Points key={tone} points={some} tone={tone} />
      ))}
      <Line points={means} tone="text" />
      <Dots dots={means.map((mean) => ({ ...mean, tone: "text" as const, shape: "diamond" as const }))} />
    </Plot>
  );
}

/** The times of configurations over that of the chosen one. */
function timeAxis(configurations: readonly Configuration[]): AxisSpec {
  const [low, high] = extent([1, ...configurations.map(({ ratio }) => ratio)]) ?? [1, 2];
  const room = Math.max(0.02, 0.06 * (high - low));
  return {
    kind: high / low > WIDE ? "log" : "linear",
    domain: [Math.max(low - room, low / 1.1), high + room],
    label: "Time, over the chosen one's",
    format: (value: number) => `${Number(value.toPrecision(3))}x`,
  };
}
