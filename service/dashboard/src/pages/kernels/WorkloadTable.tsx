import { NotTimed } from "../../app/NotTimed";
import { baselineName, inOrder, SpeedUp } from "../../app/SpeedUp";
import { Badge, type Column, format, Table, Untrusted } from "../../design";
import { axesInWords, type Workload } from "./evidence";
import styles from "./Kernels.module.css";

/** What a kernel was verified on: errors against their limits, times, and speed-ups with their intervals. */
export function WorkloadTable({ workloads }: { workloads: readonly Workload[] }) {
  const contenders = workloads.flatMap(({ timings, notTimed }) => [
    ...timings.map(({ contender }) => contender),
    ...Object.keys(notTimed),
  ]);
  const baselines = inOrder([...new Set(contenders)].filter((name) => name !== "candidate"));
  return (
    <Table
      cards
      caption="Workloads"
      columns={columnsOf(baselines)}
      rows={workloads}
      rowKey={(row) => row.id}
      empty="The verdict is kept without its workloads."
    />
  );
}

function timing(workload: Workload, name: string) {
  return workload.timings.find(({ contender }) => contender === name);
}

function columnsOf(baselines: readonly string[]): Column<Workload>[] {
  return [
    {
      key: "id",
      header: "Workload",
      cell: (row) => (
        <div className={styles.stacked}>
          <strong>
            <Untrusted text={row.id} />
          </strong>
          <span className={styles.detail}>
            <Untrusted text={axesInWords(row.axes)} />
          </span>
        </div>
      ),
    },
    {
      key: "role",
      header: "Role",
      lead: true,
      cell: ({ role, weight }) => (
        <div className={styles.stacked}>
          <Badge tone={role === "bench" ? "accent" : "wait"}>{role}</Badge>
          {weight !== 1 && <span className={styles.detail}>weight {weight}</span>}
        </div>
      ),
    },
    {
      key: "error",
      header: "Error, of its limit",
      wide: true,
      cell: (row) => (
        <div className={styles.stacked}>
          {small(row.error)}
          <span className={styles.detail}>
            limit {small(row.errorLimit)}, eager {small(row.errorOfEager)}
          </span>
        </div>
      ),
    },
    {
      key: "repeats",
      header: "Repeats",
      cell: ({ repeatable }) =>
        repeatable === null ? format.NONE : repeatable ? "bit by bit" : <Badge tone="warn">differs</Badge>,
    },
    {
      key: "time",
      header: "Time",
      numeric: true,
      sortBy: (row) => timing(row, "candidate")?.timeUs,
      cell: (row) => format.micros(timing(row, "candidate")?.timeUs),
    },
    ...baselines.map(
      (name): Column<Workload> => ({
        key: `over-${name}`,
        header: `vs ${baselineName(name)}`,
        numeric: true,
        cell: (row) => {
          const found = timing(row, name);
          const why = row.notTimed[name];
          if (!found) return why ? <NotTimed why={why} /> : format.NONE;
          return (
            <div className={styles.stacked}>
              <SpeedUp value={found.speedup} ci95={found.ci95} />
              <span className={styles.detail}>{format.micros(found.timeUs)}</span>
            </div>
          );
        },
      }),
    ),
    {
      key: "limit",
      header: "Of the limit",
      numeric: true,
      sortBy: (row) => row.limitFraction,
      cell: (row) => (
        <div className={styles.stacked}>
          {format.percent(row.limitFraction)}
          {row.limitFraction !== null && row.limitBy && (
            <span className={styles.detail}>by {format.words(row.limitBy)}</span>
          )}
        </div>
      ),
    },
  ];
}

/** A relative error; zero is bit for bit. */
function small(value: number | null): string {
  if (value === null) return format.NONE;
  return value === 0 ? "0" : value.toExponential(1);
}
