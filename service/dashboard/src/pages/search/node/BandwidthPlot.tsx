import { useMemo } from "react";
import type { Roofline, RooflinePoint } from "../../../api/node";
import { format } from "../../../design";
import { type AxisSpec, Dots, logExtent, Plot, Rule, type Target } from "../../../design/plot";
import styles from "./Node.module.css";
import { LOOKS } from "./roofline";
import { tick } from "./timing";

interface Pointed extends Target {
  point: RooflinePoint;
}

interface BandwidthPlotProps {
  roofline: Roofline;
  /** The bandwidth that the judge measured on the device at this footprint, GB/s. */
  peak: number;
  title: string;
  name: (point: RooflinePoint) => string;
}

/** The roofline of an op whose spec counts no operations: the contenders' bandwidths under the device's. */
export function BandwidthPlot({ roofline, peak, title, name }: BandwidthPlotProps) {
  const { points } = roofline;
  const names = useMemo(() => [...new Set(points.map(name))], [points, name]);
  const { x, y } = useMemo(() => {
    const rates = points.map(({ gbs }) => gbs);
    return {
      x: {
        kind: "log",
        domain: logExtent([...rates, peak], 1.3) ?? [peak / 10, peak * 1.3],
        label: "Bandwidth",
        format: (gbs) => tick(format.rate(gbs * 1e9, "B/s")),
      } satisfies AxisSpec,
      y: { kind: "band", domain: names, format: String, label: "" } satisfies AxisSpec,
    };
  }, [points, peak, names]);
  return (
    <div className={styles.plotBox}>
      <Plot<Pointed>
        title={`Bandwidths of ${title}`}
        desc={points.map((point) => `${name(point)} ${format.rate(point.gbs * 1e9, "B/s")}`).join(", ")}
        x={x}
        y={y}
        height={names.length * 34}
        targets={points.map((point) => ({
          key: `${point.kind}-${point.contender}-${point.node_id ?? ""}`,
          x: point.gbs,
          y: name(point),
          point,
        }))}
        tip={({ point }) => (
          <>
            <strong>{name(point)}</strong>
            <span>{format.micros(point.time_us)}</span>
            <span>{format.rate(point.gbs * 1e9, "B/s")}</span>
            {point.limit_fraction != null && <span>{format.percent(point.limit_fraction)} of the limit</span>}
          </>
        )}
      >
        <Rule x={peak} label="peak" tone="ok" />
        <Dots
          dots={points.map((point) => ({
            key: `${point.kind}-${point.contender}-${point.node_id ?? ""}`,
            x: point.gbs,
            y: name(point),
            ...LOOKS[point.kind],
          }))}
        />
      </Plot>
      <p className={styles.muted}>
        The bytes that the op must move, by the time of each. State <code>flops</code> under{" "}
        <code>limits</code> in the op's spec to have its arithmetic drawn, too.
      </p>
    </div>
  );
}
