import { useMemo, useState } from "react";
import type { ProgressDocument } from "../../../api/progress";
import { format, StateBadge, Untrusted } from "../../../design";
import { Dots, Plot, Rule, StepLine, type Target } from "../../../design/plot";
import { useView } from "../view";
import { type Axis, LABELS, speedupSpec, xSpec } from "./axes";
import { Choice } from "./Choice";
import styles from "./Progress.module.css";
import { axesOf, type BestPoint, bestSeries, type JudgedPoint } from "./series";

interface PointTarget extends Target {
  point: JudgedPoint | BestPoint;
  best: boolean;
}

/** The best so far against candidates, time or cost, with every verdict as a dot. */
export function BestPlot({ progress }: { progress: ProgressDocument }) {
  const [axis, setAxis] = useState<Axis>("candidates");
  const { setNode } = useView();
  const axes = axesOf(progress);
  const series = useMemo(() => bestSeries(progress, axis), [progress, axis]);
  const x = useMemo(() => xSpec(axis, series.xDomain, "Time since the start"), [axis, series]);
  const y = useMemo(() => speedupSpec(series.yKind, series.yDomain), [series]);
  const targets = useMemo<PointTarget[]>(
    () => [
      ...series.dots.map(({ key, x, y, point }) => ({ key, x, y, point, best: false })),
      ...series.champions.map(({ key, x, y, point }) => ({ key, x, y, point, best: true })),
    ],
    [series],
  );
  const unverified = screenedLead(progress.best);
  return (
    <>
      <Plot<PointTarget>
        title="Best so far"
        desc={description(progress)}
        actions={<Choice label="Against" options={axes} labels={LABELS} value={axis} onChange={setAxis} />}
        x={x}
        y={y}
        legend={[
          { label: "Best so far, with its 95 % interval", tone: "accent", shape: "line" },
          { label: "Best, verified", tone: "accent", shape: "diamond" },
          { label: "Best, screened", tone: "accent", shape: "ring" },
          { label: "Accepted, verified", tone: "ok", shape: "circle" },
          { label: "Accepted, screened", tone: "ok", shape: "ring" },
          { label: "Rejected", tone: "bad", shape: "cross" },
          { label: "Quarantined or ambiguous", tone: "warn", shape: "cross" },
        ]}
        targets={targets}
        tip={({ point, best }) => <PointTip point={point} best={best} />}
        onSelect={({ point }) => setNode(point.node_id)}
        table={{
          columns: [
            { header: "Candidates", numeric: true },
            { header: "After", numeric: true },
            { header: "Cost", numeric: true },
            { header: "Best", numeric: true },
            { header: "Measured" },
            { header: "Node" },
          ],
          rows: progress.best.map((point) => [
            format.count(point.candidates),
            format.duration(point.elapsed_s),
            format.money(point.cost_usd),
            format.speedup(point.score, point.ci95),
            MEASURED[point.level],
            `#${point.seq}`,
          ]),
        }}
      >
        <StepLine points={series.steps} />
        <Dots dots={series.dots} />
        <Rule y={1} label="the fastest baseline" />
        <Dots dots={series.champions} />
      </Plot>
      {unverified && <p className={styles.note}>{unverified}</p>}
    </>
  );
}

/** Why the line may end above the number in the page's header: its last step was screened, and not verified since. */
export function screenedLead(best: readonly BestPoint[]): string | null {
  const last = best.at(-1);
  const verified = best.findLast(({ level }) => level === "verify");
  if (!last || !verified || last.level === "verify" || last.score <= verified.score) return null;
  return `#${last.seq} was screened at ${format.ratio(last.score)} and is not verified. The best above is the verified one: #${verified.seq}, ${format.ratio(verified.score)}.`;
}

/** As the page's header says it. */
const MEASURED = { screen: "screened", verify: "verified" } as const;

function description({ best, judged }: ProgressDocument): string {
  const [first, last] = [best[0], best.at(-1)];
  const verdicts = `${judged.length} ${judged.length === 1 ? "verdict" : "verdicts"}`;
  if (!first || !last) return `${verdicts}; no candidate was accepted yet.`;
  const now = `${format.ratio(last.score)}, ${MEASURED[last.level]}`;
  return `${verdicts}; the best was ${format.ratio(first.score)} at first and is ${now} after ${best.length} steps.`;
}

function PointTip({ point, best }: { point: JudgedPoint | BestPoint; best: boolean }) {
  return (
    <>
      <strong>
        {best ? "Best: " : ""}#{point.seq}
      </strong>
      {"verdict" in point ? (
        <span>
          <StateBadge state={point.verdict} /> at <Untrusted text={format.words(point.gate)} />
        </span>
      ) : (
        <StateBadge state={MEASURED[point.level]} />
      )}
      <span>{format.speedup(point.score, "ci95" in point ? point.ci95 : null)}</span>
      <span>
        {format.count(point.candidates)} candidates, {format.duration(point.elapsed_s)}
        {point.cost_usd !== null && `, ${format.money(point.cost_usd)}`}
      </span>
    </>
  );
}
