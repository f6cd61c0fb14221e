import { useMemo, useState } from "react";
import type { ReportDocument, Roofline, RooflinePoint, WorkloadReport } from "../../../api/node";
import { type Column, EmptyState, Field, format, Select, Table, visible } from "../../../design";
import { type AxisSpec, Dots, Line, Plot, type Target } from "../../../design/plot";
import { BandwidthPlot } from "./BandwidthPlot";
import styles from "./Node.module.css";
import { type Drawing, drawing, marks, type Peaks, peaksOf } from "./roofline";
import { Section } from "./Section";
import { contenderName } from "./sentence";
import { tick } from "./timing";
import { axesInWords } from "./workloads";

type Drawn = WorkloadReport & { roofline: Roofline };

/** The contenders of a workload under the peaks that the judge measured on the device. */
export function RooflineView({ report }: { report: ReportDocument }) {
  const drawn = report.workloads.filter((workload): workload is Drawn =>
    Boolean(workload.roofline?.points.length),
  );
  const peaks = useMemo(() => peaksOf(report.device), [report.device]);
  const [asked, setAsked] = useState<string | null>(null);
  const largest = drawn.reduce<Drawn | undefined>(
    (best, next) => (best && best.roofline.bytes >= next.roofline.bytes ? best : next),
    undefined,
  );
  const chosen = drawn.find(({ id }) => id === asked) ?? largest;
  if (!chosen) {
    return (
      <EmptyState title="Nothing to draw">
        The roofline shows timed contenders only, and this verdict has no times.
      </EmptyState>
    );
  }
  return (
    <div className={styles.stack}>
      {drawn.length > 1 && (
        <div className={styles.toolbar}>
          <Field label="Workload">
            <Select value={chosen.id} onChange={(event) => setAsked(event.currentTarget.value)}>
              {drawn.map((workload) => (
                <option key={workload.id} value={workload.id}>
                  {visible(workload.id)} ({visible(axesInWords(workload.axes))})
                </option>
              ))}
            </Select>
          </Field>
        </div>
      )}
      <Work roofline={chosen.roofline} />
      <Chart workload={chosen} peaks={peaks} />
      <Section title="Contenders">
        <Table
          caption={`Contenders on ${visible(chosen.id)}`}
          columns={COLUMNS}
          rows={chosen.roofline.points}
          rowKey={(point) => `${point.kind}-${point.contender}-${point.node_id ?? ""}`}
        />
      </Section>
      <PeaksTable peaks={peaks} roofline={chosen.roofline} device={report.device} />
    </div>
  );
}

function pointName({ kind, contender, seq }: RooflinePoint): string {
  switch (kind) {
    case "node":
      return "this node";
    case "parent":
      return `parent #${seq}`;
    case "champion":
      return `champion #${seq}`;
    case "baseline":
      return contenderName(contender);
  }
}

/** What the workload asks of the device, and what bounds it. */
function Work({ roofline }: { roofline: Roofline }) {
  const { bytes, operations, intensity, limit_us, limit_by } = roofline;
  return (
    <p>
      It moves at least {format.bytes(bytes)}
      {operations !== null
        ? ` for ${format.rate(operations, "FLOP")}: ${figure(intensity)} operations per byte.`
        : ". Its operations are unknown: the op's spec counts none, so it is compared by bandwidth alone."}
      {limit_us !== null &&
        ` No kernel can take less than ${format.micros(limit_us)} here; ${
          limit_by === "operations" ? "its operations" : "the bytes that it must move"
        } bound it.`}
    </p>
  );
}

function figure(value: number | null): string {
  return value === null ? format.NONE : String(Number(value.toPrecision(3)));
}

interface Pointed extends Target {
  point: RooflinePoint;
}

function Chart({ workload, peaks }: { workload: Drawn; peaks: Peaks }) {
  const { roofline } = workload;
  const drawn = useMemo(() => drawing(roofline, peaks), [roofline, peaks]);
  const title = visible(workload.id);
  if (drawn) return <Drawn roofline={roofline} drawn={drawn} title={title} />;
  if (roofline.operations === null && roofline.bandwidth_gbs !== null)
    return <BandwidthPlot roofline={roofline} peak={roofline.bandwidth_gbs} title={title} name={pointName} />;
  return (
    <EmptyState title="No roofline">
      The judge measured no peak of this device that bounds the workload.
    </EmptyState>
  );
}

function Drawn({ roofline, drawn, title }: { roofline: Roofline; drawn: Drawing; title: string }) {
  const found = useMemo(() => marks(roofline, pointName), [roofline]);
  const x = useMemo<AxisSpec>(
    () => ({ kind: "log", domain: drawn.x, label: "Operations per byte", format: figure }),
    [drawn],
  );
  const y = useMemo<AxisSpec>(
    () => ({
      kind: "log",
      domain: drawn.y,
      label: "FLOP/s",
      format: (gflops) => tick(format.rate(gflops * 1e9, "")),
    }),
    [drawn],
  );
  return (
    <div className={styles.plotBox}>
      <Plot<Pointed>
        title={`Roofline of ${title}`}
        desc={`${found
          .map(({ label, y: rate }) => `${label} ${format.rate(rate * 1e9, "FLOP/s")}`)
          .join(", ")}, at ${figure(roofline.intensity)} operations per byte`}
        x={x}
        y={y}
        legend={found.map(({ label, tone, shape }) => ({ label, tone, shape })).reverse()}
        targets={found.map(({ key, x: at, y: rate, point }) => ({ key, x: at, y: rate, point }))}
        tip={({ point }) => (
          <>
            <strong>{pointName(point)}</strong>
            <span>{format.micros(point.time_us)}</span>
            <span>
              {format.rate((point.gflops ?? 0) * 1e9, "FLOP/s")}, {format.rate(point.gbs * 1e9, "B/s")}
            </span>
            {point.limit_fraction != null && <span>{format.percent(point.limit_fraction)} of the limit</span>}
          </>
        )}
      >
        {drawn.ceilings.map(({ key, points, binds }) => (
          <Line key={key} points={points} tone={binds ? "text" : "border"} dashed={!binds} />
        ))}
        <Dots
          dots={drawn.ceilings
            .filter(({ binds }) => binds)
            .map(({ key, label, points }) => ({
              key,
              ...(key.startsWith("arithmetic") ? points[1] : middle(points)),
              tone: "text",
              radius: 0,
              label,
            }))}
        />
        <Dots
          dots={found.map(({ key, x: at, y: rate, tone, shape, radius }) => ({
            key,
            x: at,
            y: rate,
            tone,
            shape,
            radius,
          }))}
        />
      </Plot>
      <p className={styles.muted}>
        Solid: the peaks that bound this workload. Dashed: the device's at other footprints and in other
        arithmetics.
      </p>
    </div>
  );
}

/** Below a third of the way along a line that rises, on logarithmic axes: a name there does not touch it. */
function middle([from, to]: Drawing["ceilings"][number]["points"]) {
  const between = (a: number, b: number) => Math.exp(Math.log(a) + (Math.log(b) - Math.log(a)) / 3);
  return { x: between(Number(from.x), Number(to.x)), y: 0.7 * between(Number(from.y), Number(to.y)) };
}

const COLUMNS: readonly Column<RooflinePoint>[] = [
  {
    key: "contender",
    header: "Contender",
    cell: pointName,
  },
  {
    key: "time",
    header: "Time",
    numeric: true,
    sortBy: (point) => point.time_us,
    cell: (point) => format.micros(point.time_us),
  },
  {
    key: "gbs",
    header: "Bandwidth",
    numeric: true,
    sortBy: (point) => point.gbs,
    cell: (point) => format.rate(point.gbs * 1e9, "B/s"),
  },
  {
    key: "gflops",
    header: "Rate",
    numeric: true,
    sortBy: (point) => point.gflops,
    cell: (point) => (point.gflops ? format.rate(point.gflops * 1e9, "FLOP/s") : format.NONE),
  },
  {
    key: "limit",
    header: "Of the limit",
    numeric: true,
    sortBy: (point) => point.limit_fraction,
    cell: (point) => format.percent(point.limit_fraction),
  },
];

function PeaksTable({
  peaks,
  roofline,
  device,
}: {
  peaks: Peaks;
  roofline: Roofline;
  device: ReportDocument["device"];
}) {
  const rows = [
    ...peaks.bandwidth.map(({ bytes, gbs }) => ({
      key: `b${bytes}`,
      what: `Bandwidth at ${format.bytes(bytes)}`,
      rate: format.rate(gbs * 1e9, "B/s"),
      binds: gbs === roofline.bandwidth_gbs,
    })),
    ...peaks.arithmetic.map(({ name, gflops }) => ({
      key: `a${name}`,
      what: `Arithmetic in ${format.words(visible(name))}`,
      rate: format.rate(gflops * 1e9, "FLOP/s"),
      binds: name === roofline.arithmetic,
    })),
  ];
  const name = typeof device.name === "string" ? ` of ${visible(device.name)}` : "";
  return (
    <Section title={`Measured peaks${name}`}>
      <Table
        caption="Measured peaks"
        columns={[
          { key: "what", header: "Peak", cell: (row: (typeof rows)[number]) => row.what },
          { key: "rate", header: "Measured", numeric: true, cell: (row) => row.rate },
          { key: "binds", header: "Bounds this workload", cell: (row) => (row.binds ? "yes" : "") },
        ]}
        rows={rows}
        rowKey={(row) => row.key}
        empty="None were measured on this device."
      />
    </Section>
  );
}
