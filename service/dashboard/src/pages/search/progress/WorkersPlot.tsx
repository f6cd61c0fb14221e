import { useMemo, useState } from "react";
import type { TimelineAttempt } from "../../../api/progress";
import { Button, EmptyState, format, StateBadge, Untrusted, useNow, visible } from "../../../design";
import { type AxisSpec, Bars, Plot, type Target } from "../../../design/plot";
import { useView } from "../view";
import { Choice } from "./Choice";
import { type AttemptBar, busyShare, KIND_TONES, KINDS, timeline, within, zoom } from "./timeline";

const ROW = 34;
const NOW_EVERY_MS = 5000;

const RANGES = { hour: 3600, minutes: 600, all: null } as const;
type Range = keyof typeof RANGES;
const RANGE_LABELS: Readonly<Record<Range, string>> = {
  hour: "Last hour",
  minutes: "Last 10 min",
  all: "All",
};

interface BarTarget extends Target {
  bar: AttemptBar;
}

/** Who worked when: each attempt as a bar in its worker's row. */
export function WorkersPlot({ attempts, whole }: { attempts: readonly TimelineAttempt[]; whole: boolean }) {
  const now = useNow(NOW_EVERY_MS);
  const { setNode } = useView();
  const { workers, bars, span, queued } = useMemo(() => timeline(attempts, now), [attempts, now]);
  const [range, setRange] = useState<Range | null>("all");
  const [dragged, setDragged] = useState<readonly [number, number] | null>(null);
  const shown = zoom(dragged ?? lastOf(range, span), span);
  const [from, to] = shown;
  const x = useMemo<AxisSpec>(
    () => ({
      kind: "duration",
      domain: [from, to],
      label: "Time since the first step",
      format: format.duration,
    }),
    [from, to],
  );
  const rowNames = workers.join("\n");
  const y = useMemo<AxisSpec>(
    () => ({ kind: "band", domain: rowNames.split("\n"), label: "Worker", format: visible }),
    [rowNames],
  );
  const visibleBars = useMemo(() => within(bars, [from, to]), [bars, from, to]);
  const targets = useMemo<BarTarget[]>(
    () => visibleBars.map((bar) => ({ key: bar.key, x: [bar.from, bar.to], y: bar.row, bar })),
    [visibleBars],
  );
  if (bars.length === 0) {
    return (
      <EmptyState title="No step has run yet">
        {queued > 0 ? `${queued} wait for a worker.` : "Steps are drawn here as workers take them."}
      </EmptyState>
    );
  }
  const options = (["all", "hour", "minutes"] as const).filter((name) => (RANGES[name] ?? 0) < span);
  return (
    <Plot<BarTarget>
      title={whole ? "Workers" : "Workers: the first 10,000 steps"}
      desc={`${whole ? "" : "The first "}${bars.length} steps of ${workers.length} workers in ${format.duration(span)}.`}
      actions={
        <>
          {dragged && <Button onClick={() => setDragged(null)}>Undo the zoom</Button>}
          <Choice
            label="Range"
            options={options}
            labels={RANGE_LABELS}
            value={dragged ? null : range}
            onChange={(next) => {
              setDragged(null);
              setRange(next);
            }}
          />
        </>
      }
      x={x}
      y={y}
      height={Math.max(2, workers.length) * ROW}
      legend={[
        ...KINDS.map((kind) => ({ label: kind, tone: KIND_TONES[kind] ?? "wait" })),
        { label: "failed", tone: "bad", shape: "hatched" },
        { label: "still runs", tone: "wait", shape: "hatched" },
      ]}
      targets={targets}
      tip={({ bar }) => <BarTip bar={bar} />}
      onSelect={({ bar }) => setNode(bar.attempt.node_id)}
      onBrush={(start, end) => setDragged([start, end])}
      table={{
        columns: [
          { header: "Worker" },
          { header: "Steps", numeric: true },
          { header: "Failed", numeric: true },
          { header: "Busy", numeric: true },
        ],
        rows: workers.map((worker) => {
          const mine = visibleBars.filter(({ row }) => row === worker);
          return [
            <Untrusted key="name" text={worker} />,
            format.count(mine.length),
            format.count(mine.filter(({ tone }) => tone === "bad").length),
            format.percent(busyShare(mine, worker, shown)),
          ];
        }),
      }}
    >
      <Bars bars={visibleBars} />
    </Plot>
  );
}

/** The end of the whole: the last hour, the last ten minutes. */
function lastOf(range: Range | null, span: number): readonly [number, number] | null {
  const seconds = range && RANGES[range];
  return seconds ? [span - seconds, span] : null;
}

function BarTip({ bar: { attempt, seconds } }: { bar: AttemptBar }) {
  return (
    <>
      <strong>
        {attempt.kind} for #{attempt.seq}
      </strong>
      <span>
        <StateBadge state={attempt.state} /> {format.duration(seconds)}
        {attempt.tries > 1 && `, try ${attempt.tries}`}
      </span>
      <Untrusted text={attempt.owner} />
      {attempt.error && <Untrusted text={attempt.error.slice(0, 200)} />}
    </>
  );
}
