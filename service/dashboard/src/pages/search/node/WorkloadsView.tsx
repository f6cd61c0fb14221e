import { useMemo } from "react";
import type { ReportDocument, WorkloadReport } from "../../../api/node";
import { attackInWords } from "../../../app/attack";
import { NotTimed } from "../../../app/NotTimed";
import { Badge, type Column, EmptyState, format, Meter, Table, Untrusted } from "../../../design";
import { FailureCard } from "./FailureCard";
import { limits, number, shareOfLimit, shown } from "./failure";
import styles from "./Node.module.css";
import { SweepTable } from "./SweepTable";
import { shortName } from "./sentence";
import { axesInWords, inOrder, worstFamily } from "./workloads";

/** Every workload: errors against their limits, times, speed-ups; the one that failed comes first. */
export function WorkloadsView({ report }: { report: ReportDocument }) {
  const rows = useMemo(() => inOrder(report), [report]);
  const columns = useMemo(() => columnsOf(report), [report]);
  const searched = attackInWords(report.attack);
  return (
    <div className={styles.stack}>
      <FailureCard report={report} />
      {searched && (
        <p className={styles.muted}>
          <Untrusted text={searched} />
        </p>
      )}
      {rows.length === 0 ? (
        <EmptyState title="No workload was run">
          The judging ended at the {format.words(report.gate)} gate, before anything was.
        </EmptyState>
      ) : (
        <Table caption="Workloads" columns={columns} rows={rows} rowKey={(row) => row.id} />
      )}
      {report.tuned && (
        <p className={styles.muted}>
          Triton&rsquo;s tuner: <Untrusted text={report.tuned} />
        </p>
      )}
      {report.sweep && <SweepTable sweep={report.sweep} />}
    </div>
  );
}

function columnsOf(report: ReportDocument): Column<WorkloadReport>[] {
  const baselines = [
    ...new Set(
      report.workloads.flatMap(({ timings, not_timed }) => [
        ...timings.map(({ contender }) => contender),
        ...Object.keys(not_timed),
      ]),
    ),
  ].filter((name) => name !== "candidate");
  const candidate = ({ timings }: WorkloadReport) =>
    timings.find(({ contender }) => contender === "candidate");
  const reference = report.level === "baseline";
  return [
    {
      key: "id",
      header: "Workload",
      sortBy: (row) => row.id,
      cell: (row) => (
        <div className={styles.cell}>
          <span className={styles.row}>
            <strong>
              <Untrusted text={row.id} />
            </strong>
            <span className={styles.muted}>
              {format.words(row.role)}
              {row.weight !== 1 && `, weight ${row.weight}`}
            </span>
            {row.id === report.failure?.workload && <Badge tone="bad">failed</Badge>}
          </span>
          <span className={styles.muted}>
            <Untrusted text={axesInWords(row.axes)} />
          </span>
        </div>
      ),
    },
    {
      key: "error",
      header: reference ? "Error of eager" : "Error against its limit",
      sortBy: (row) => shareOfLimit(row.error.candidate, row.error.limit) ?? number(row.error.candidate),
      cell: (row) => <ErrorCell workload={row} reference={reference} />,
    },
    {
      key: "families",
      header: "Input families",
      sortBy: (row) => worstFamily(row)?.share,
      cell: (row) => <Families workload={row} />,
    },
    {
      key: "repeatable",
      header: "Same bits again",
      cell: ({ repeatable }) =>
        repeatable === null ? (
          <span className={styles.muted}>{format.NONE}</span>
        ) : repeatable ? (
          "yes"
        ) : (
          <Badge tone="warn">no</Badge>
        ),
    },
    ...(reference
      ? baselines.map(
          (name): Column<WorkloadReport> => ({
            key: name,
            header: shortName(name),
            numeric: true,
            sortBy: (row) => row.timings.find(({ contender }) => contender === name)?.time_us,
            cell: (row) =>
              row.not_timed[name] ? (
                <NotTimed why={row.not_timed[name]} />
              ) : (
                format.micros(row.timings.find(({ contender }) => contender === name)?.time_us)
              ),
          }),
        )
      : [
          {
            key: "time",
            header: "Time",
            numeric: true,
            sortBy: (row: WorkloadReport) => candidate(row)?.time_us,
            cell: (row: WorkloadReport) => format.micros(candidate(row)?.time_us),
          },
          ...baselines.map(
            (name): Column<WorkloadReport> => ({
              key: name,
              header: `Over ${shortName(name)}`,
              numeric: true,
              sortBy: (row) => row.timings.find(({ contender }) => contender === name)?.speedup,
              cell: (row) => {
                const found = row.timings.find(({ contender }) => contender === name);
                const why = row.not_timed[name];
                return why ? <NotTimed why={why} /> : format.speedup(found?.speedup, found?.speedup_ci95);
              },
            }),
          ),
        ]),
    {
      key: "limit",
      header: "Of the limit",
      numeric: true,
      sortBy: (row) => limitShare(row),
      cell: (row) => format.percent(limitShare(row)),
    },
  ];
}

function limitShare({ roofline, timings }: WorkloadReport): number | null {
  const own = timings[0];
  return roofline?.limit_us && own ? roofline.limit_us / own.time_us : null;
}

function ErrorCell({ workload, reference }: { workload: WorkloadReport; reference: boolean }) {
  const { candidate, eager, limit } = workload.error;
  if (reference) return <Untrusted text={shown(eager)} />;
  if (candidate === null || candidate === undefined) return <span className={styles.muted}>not checked</span>;
  const share = shareOfLimit(candidate, limit);
  return (
    <div className={styles.cell}>
      {share === null ? (
        <Untrusted text={shown(candidate)} />
      ) : (
        <>
          <span className={share > 1 ? styles.bad : undefined}>{limits(share)}</span>
          <Meter label="Error" text={limits(share)} value={share} max={1} />
        </>
      )}
      <span className={styles.muted}>
        <Untrusted text={shown(candidate)} />, eager <Untrusted text={shown(eager)} />
        {limit === null || limit === undefined ? (
          ", the op's own tolerance"
        ) : (
          <>
            , limit <Untrusted text={shown(limit)} />
          </>
        )}
      </span>
    </div>
  );
}

function Families({ workload }: { workload: WorkloadReport }) {
  const worst = worstFamily(workload);
  if (workload.families.length === 0) return <span className={styles.muted}>{format.NONE}</span>;
  return (
    <details className={styles.families}>
      <summary>
        {workload.families.length} families
        {worst && (
          <>
            , at most {limits(worst.share)} (<Untrusted text={format.words(worst.name)} />)
          </>
        )}
      </summary>
      <ul className={styles.plainList}>
        {workload.families.map(({ name, error, limit }) => (
          <li key={name}>
            <Untrusted text={format.words(name)} />: <Untrusted text={shown(error)} />
            {limit !== null && limit !== undefined && (
              <>
                {" "}
                of <Untrusted text={shown(limit)} />
              </>
            )}
          </li>
        ))}
      </ul>
    </details>
  );
}
