import { useMemo } from "react";
import type { Importance } from "../../../api/mattered";
import { format, Untrusted, visible } from "../../../design";
import { type AxisSpec, Bars, Dots, Plot, type Target } from "../../../design/plot";
import styles from "./Mattered.module.css";

type Tunable = Importance["tunables"][number];

const ROW = 48;

interface TunableTarget extends Target {
  tunable: Tunable;
}

/** How much of the differences in time between configurations each tunable explains. */
export function ImportancePlot({ importance }: { importance: Importance }) {
  const { tunables, configurations, sweeps, unclear } = importance;
  const several = sweeps > 1;
  const { x, y } = useMemo(
    () => ({
      x: {
        kind: "linear",
        domain: [0, 1],
        label: "Share of the variance of log time, %",
        format: format.percent,
      } satisfies AxisSpec,
      y: {
        kind: "band",
        domain: tunables.map(({ name }) => name),
        label: "Tunable",
        format: visible,
      } satisfies AxisSpec,
    }),
    [tunables],
  );
  const targets = useMemo<TunableTarget[]>(
    () => tunables.map((tunable) => ({ key: tunable.name, x: [0, tunable.share], y: tunable.name, tunable })),
    [tunables],
  );
  if (unclear)
    return (
      <p className={styles.note}>
        What mattered is not told: <Untrusted text={unclear} />.
      </p>
    );
  return (
    <Plot<TunableTarget>
      title="What mattered: tunables"
      desc={tunables.map(({ name, share }) => `${visible(name)} ${format.percent(share)}`).join(", ")}
      x={x}
      y={y}
      height={tunables.length * ROW}
      legend={[
        {
          label: several
            ? "By this tunable alone: the mean over the sweeps that vary it"
            : `Of ${format.count(configurations)} configurations, by this tunable alone`,
          tone: "accent",
        },
        { label: "Expected if it did nothing", tone: "warn", shape: "diamond" },
      ]}
      targets={targets}
      tip={({ tunable }) => (
        <>
          <strong>
            <Untrusted text={tunable.name} />: {format.percent(tunable.share)}
          </strong>
          <span>
            {tunable.values} values{several && ` in ${format.count(tunable.sweeps)} sweeps`};{" "}
            {format.percent(tunable.by_chance)} is expected if it did nothing
          </span>
        </>
      )}
      table={{
        columns: [
          { header: "Tunable" },
          { header: "Values", numeric: true },
          ...(several ? [{ header: "Sweeps", numeric: true }] : []),
          { header: "Explains", numeric: true },
          { header: "Expected if it did nothing", numeric: true },
        ],
        rows: tunables.map((one) => [
          <Untrusted key="name" text={one.name} />,
          format.count(one.values),
          ...(several ? [format.count(one.sweeps)] : []),
          format.percent(one.share),
          format.percent(one.by_chance),
        ]),
      }}
    >
      <Bars
        bars={tunables.map(({ name, share }) => ({
          key: name,
          row: name,
          from: 0,
          to: share,
          tone: "accent" as const,
          label: format.percent(share),
        }))}
      />
      <Dots
        dots={tunables.map(({ name, by_chance }) => ({
          key: name,
          x: by_chance,
          y: name,
          tone: "warn" as const,
          shape: "diamond" as const,
        }))}
      />
    </Plot>
  );
}
