import { useMemo } from "react";
import type { ReportDocument } from "../../../api/node";
import { Badge, type Column, format, Table, Untrusted } from "../../../design";
import { ImportancePlot } from "../mattered/ImportancePlot";
import { named } from "../mattered/swept";
import styles from "./Node.module.css";
import { Section } from "./Section";

export type Sweep = NonNullable<ReportDocument["sweep"]>;
type Configuration = Sweep["configurations"][number];

/** The configurations of a candidate that leaves numbers to the judge, and how they compared. */
export function SweepTable({ sweep }: { sweep: Sweep }) {
  const columns = useMemo(() => columnsOf(sweep), [sweep]);
  return (
    <Section title="Tunables">
      <p className={styles.muted}>
        <Untrusted text={sweep.summary} />. The verdict is on the first.
        {sweep.left_out > 0 &&
          ` ${format.count(sweep.left_out)} were not timed, ${format.count(sweep.not_compiled)} of them not compiled: there was no time.`}
        {sweep.limit_s != null && ` The budget's ${format.duration(sweep.limit_s)} for sweeps ended it.`}
      </p>
      <ImportancePlot importance={sweep.importance} />
      <Table
        caption="Configurations of the candidate"
        columns={columns}
        rows={sweep.configurations}
        rowKey={(row) => named(row.values)}
      />
    </Section>
  );
}

function columnsOf(sweep: Sweep): Column<Configuration>[] {
  const workloads = [...new Set(sweep.configurations.flatMap(({ time_us }) => Object.keys(time_us)))];
  const chosen = named(sweep.chosen);
  return [
    {
      key: "values",
      header: "Configuration",
      cell: ({ values, failure }) => (
        <div className={styles.cell}>
          <span className={styles.row}>
            <code>
              <Untrusted text={named(values)} />
            </code>
            {named(values) === chosen && <Badge tone="ok">chosen</Badge>}
            {failure && <Badge tone="bad">out</Badge>}
          </span>
          {failure && (
            <span className={styles.muted}>
              <Untrusted text={failure} />
            </span>
          )}
        </div>
      ),
    },
    ...workloads.map(
      (name): Column<Configuration> => ({
        key: `time ${name}`,
        header: `Time, ${name}`,
        numeric: true,
        sortBy: (row) => row.time_us[name],
        // Left early there: the time is of its first calls alone.
        cell: (row) => (row.unscaled?.includes(name) ? "about " : "") + format.micros(row.time_us[name]),
      }),
    ),
    {
      key: "rounds",
      header: "Rounds",
      numeric: true,
      sortBy: (row) => row.rounds,
      cell: (row) => format.count(row.rounds),
    },
  ];
}
