import { visible } from "../escapes";
import { LETTER, type PlotTone, paint, usePlot } from "./context";
import type { Point } from "./marks";
import styles from "./Plot.module.css";
import type { Place } from "./scales";

/** A dot that stands beside the middle of its column, so that many of one value are seen. */
export interface Shifted extends Point {
  /** As a share of the column, from -0.5 to 0.5. */
  shift?: number;
}

/** Dots of one tone, as one element however many they are. */
export function Points({
  points,
  tone,
  radius = 2.5,
}: {
  points: readonly Shifted[];
  tone: PlotTone;
  radius?: number;
}) {
  const { x, y, clip } = usePlot();
  const d = points
    .map((point) => `M${px(x.at(point.x) + (point.shift ?? 0) * x.band)},${px(y.at(point.y))}h0`)
    .join("");
  return (
    <path
      d={d}
      clipPath={`url(#${clip})`}
      className={styles.points}
      style={{ color: paint(tone), strokeWidth: 2 * radius }}
    />
  );
}

/** Lines of one tone from point to point, as one element however many they are; `faint` ones stand back. */
export function Strands({
  strands,
  tone,
  faint = false,
}: {
  strands: readonly (readonly Point[])[];
  tone: PlotTone;
  faint?: boolean;
}) {
  const { x, y, clip } = usePlot();
  const d = strands
    .map((strand) => `M${strand.map((point) => `${px(x.at(point.x))},${px(y.at(point.y))}`).join("L")}`)
    .join("");
  return (
    <path
      d={d}
      clipPath={`url(#${clip})`}
      className={styles.strands}
      data-faint={faint || undefined}
      style={{ color: paint(tone) }}
    />
  );
}

export interface UprightAxis {
  /** The column. */
  key: string;
  ticks: readonly { at: Place; label: string }[];
}

/** An axis of its own at each column of a band axis on x. */
export function Uprights({ axes }: { axes: readonly UprightAxis[] }) {
  const { x, y, width, height } = usePlot();
  return axes.map(({ key, ticks }) => {
    const at = x.at(key);
    const right = at > width - x.step / 2 - 1;
    return (
      <g key={key} transform={`translate(${at},0)`}>
        <line y2={height} className={styles.base} />
        {ticks.map(({ at: value, label }) => (
          <text
            key={label}
            x={right ? -5 : 5}
            y={y.at(value)}
            dy="0.32em"
            textAnchor={right ? "end" : "start"}
            className={styles.note}
          >
            {visible(label)}
          </text>
        ))}
      </g>
    );
  });
}

export interface CellMark {
  key: string;
  x: string;
  y: string;
  tone: PlotTone;
  /** Written in the cell where there is room. */
  label?: string;
}

/** Cells of two band axes: a heat map. */
export function Cells({ cells }: { cells: readonly CellMark[] }) {
  const { x, y } = usePlot();
  return cells.map(({ key, x: column, y: row, tone, label }) => (
    <g key={key} transform={`translate(${px(x.at(column))},${px(y.at(row))})`}>
      <rect
        x={-x.step / 2 + 0.5}
        y={-y.step / 2 + 0.5}
        width={Math.max(1, x.step - 1)}
        height={Math.max(1, y.step - 1)}
        className={styles.cell}
        style={{ color: paint(tone) }}
      />
      {label && label.length * LETTER < x.step && (
        <text dy="0.32em" textAnchor="middle" className={styles.onCell}>
          {label}
        </text>
      )}
    </g>
  ));
}

/** A tenth of a pixel is all that is seen; more only makes the path longer. */
function px(pixels: number): number {
  return Math.round(pixels * 10) / 10;
}
