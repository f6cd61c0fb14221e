import { useMemo } from "react";
import type { ReportDocument, Timing, WorkloadReport } from "../../../api/node";
import { EmptyState, format, Untrusted, visible } from "../../../design";
import { type AxisSpec, Dots, Intervals, Plot, type PlotTone, Rule, type Target } from "../../../design/plot";
import styles from "./Node.module.css";
import { contenderName, shortName } from "./sentence";
import { comparison, exchangeUs, isShort, tick, timeDomain } from "./timing";
import { axesInWords } from "./workloads";

/** For every workload that was timed, the contenders beside each other. */
export function TimingView({ report }: { report: ReportDocument }) {
  const timed = report.workloads.filter(({ timings }) => timings.length > 0);
  const exchange = exchangeUs(report.device);
  if (timed.length === 0) {
    return (
      <EmptyState title="Nothing was timed">
        {report.failure
          ? `The judging ended at the ${format.words(report.gate)} gate: only what is right is timed.`
          : "This verdict has no times."}
      </EmptyState>
    );
  }
  return (
    <div className={styles.stack}>
      <p className={styles.muted}>
        Medians of blocks in random order with their 95 % intervals; every dot is a block.
        {exchange !== null &&
          ` Every time holds the ${format.micros(exchange)} that the clock reads where nothing is run.`}
      </p>
      {timed.map((workload) => (
        <Workload key={workload.id} workload={workload} exchange={exchange} />
      ))}
    </div>
  );
}

interface Contender extends Target {
  timing: Timing;
}

const toneOf = (contender: string): PlotTone => (contender === "candidate" ? "accent" : "muted");

function Workload({ workload, exchange }: { workload: WorkloadReport; exchange: number | null }) {
  const { timings } = workload;
  const { x, y } = useMemo(() => {
    const { kind, domain } = timeDomain(timings);
    return {
      x: {
        kind,
        domain,
        label: "Time of a call",
        ticks: 4,
        format: (us) => tick(format.micros(us)),
      } satisfies AxisSpec,
      y: {
        kind: "band",
        domain: timings.map(({ contender }) => contender),
        format: shortName,
        label: "",
      } satisfies AxisSpec,
    };
  }, [timings]);
  const name = visible(workload.id);
  const sizes = axesInWords(workload.axes);
  return (
    <div className={styles.plotBox}>
      <Plot<Contender>
        title={name}
        desc={timings
          .map((timing) => `${contenderName(timing.contender)} ${format.micros(timing.time_us)}`)
          .join(", ")}
        actions={
          <span className={styles.muted}>
            {format.words(workload.role)}
            {sizes && (
              <>
                , <Untrusted text={sizes} />
              </>
            )}
          </span>
        }
        x={x}
        y={y}
        height={timings.length * 34}
        targets={timings.map((timing) => ({
          key: timing.contender,
          x: timing.ci95
            ? [timing.ci95[0] ?? timing.time_us, timing.ci95[1] ?? timing.time_us]
            : timing.time_us,
          y: timing.contender,
          timing,
        }))}
        tip={({ timing }) => <Tip timing={timing} />}
        table={{
          columns: [
            { header: "Contender" },
            { header: "Median", numeric: true },
            { header: "95 % interval", numeric: true },
            { header: "Blocks", numeric: true },
            { header: "Candidate against it", numeric: true },
          ],
          rows: timings.map((timing) => [
            contenderName(timing.contender),
            format.micros(timing.time_us),
            interval(timing.ci95),
            timing.samples.length,
            format.speedup(timing.speedup, timing.speedup_ci95),
          ]),
        }}
      >
        <Dots
          dots={timings.flatMap(({ contender, samples }) =>
            samples.map((sample, at) => ({
              key: `${contender}-${at}`,
              x: sample,
              y: contender,
              tone: "border" as const,
              radius: 2,
            })),
          )}
        />
        <Intervals
          marks={timings.map(({ contender, time_us, ci95 }) => ({
            key: contender,
            at: contender,
            low: ci95?.[0] ?? time_us,
            high: ci95?.[1] ?? time_us,
            value: time_us,
            tone: toneOf(contender),
          }))}
        />
        {workload.roofline?.limit_us && <Rule x={workload.roofline.limit_us} label="limit" tone="ok" />}
      </Plot>
      <ul className={styles.plainList}>
        {timings
          .filter(({ contender }) => contender !== "candidate" && timings[0]?.contender === "candidate")
          .map((timing) => (
            <li key={timing.contender}>{comparison(timing)}</li>
          ))}
        {Object.entries(workload.not_timed).map(([name, why]) => (
          <li key={name}>
            {contenderName(name)} was not timed: <Untrusted text={why} />
          </li>
        ))}
      </ul>
      {isShort(workload, exchange) && (
        <p className={styles.warn}>
          The time is not much longer than the {format.micros(exchange)} that the clock reads where nothing is
          run: the ratio of the kernels themselves is further from 1 than this one.
        </p>
      )}
    </div>
  );
}

function Tip({ timing }: { timing: Timing }) {
  return (
    <>
      <strong>{contenderName(timing.contender)}</strong>
      <span>
        {format.micros(timing.time_us)}
        {timing.ci95 && `, 95 % within ${interval(timing.ci95)}`}
      </span>
      <span>{timing.samples.length} blocks</span>
      {timing.speedup !== null && <span>{comparison(timing)}</span>}
    </>
  );
}

function interval(ci95: Timing["ci95"]): string {
  const [low, high] = ci95 ?? [];
  return low === undefined || high === undefined
    ? format.NONE
    : `${format.micros(low)} to ${format.micros(high)}`;
}
