import { visible } from "../escapes";
import { LETTER, usePlot } from "./context";
import styles from "./Plot.module.css";

/** Grid lines, ticks and the names of both axes. */
export function Axes({
  xLabel,
  yLabel,
  left,
  right,
}: {
  xLabel: string;
  yLabel: string;
  left: number;
  right: number;
}) {
  const { x, y, width, height } = usePlot();
  const letters = Math.floor((left - 12) / LETTER);
  return (
    <g className={styles.axes}>
      {y.ticks.map(({ at, label }) => (
        <g key={`${at}`} transform={`translate(0,${at})`}>
          {y.kind !== "band" && <line x2={width} className={styles.grid} />}
          <text x={-8} dy="0.32em" textAnchor="end">
            {shortened(visible(label), letters)}
            {label.length > letters && <title>{visible(label)}</title>}
          </text>
        </g>
      ))}
      {(x.kind === "band" ? apart(x.ticks, x.step) : x.ticks).map(({ at, label }) => (
        <g key={`${at}`} transform={`translate(${at},0)`}>
          {x.kind !== "band" && <line y2={height} className={styles.grid} />}
          <text x={inwards(at, label, width + right)} y={height + 16} textAnchor="middle">
            {visible(label)}
          </text>
        </g>
      ))}
      <line y1={height} y2={height} x2={width} className={styles.base} />
      <text x={width} y={height + 34} textAnchor="end" className={styles.axisName}>
        {visible(xLabel)}
      </text>
      <text x={-left} y={-10} textAnchor="start" className={styles.axisName}>
        {visible(yLabel)}
      </text>
    </g>
  );
}

/** How far a label is moved to the left, so that it does not reach over the plot's edge. */
function inwards(at: number, label: string, edge: number): number {
  return Math.min(0, edge - at - (label.length * LETTER) / 2);
}

/** Columns whose names have room: each so-manieth where they are narrow, cut where one name alone is too long. */
function apart<Tick extends { label: string }>(ticks: readonly Tick[], step: number): Tick[] {
  const longest = ticks.reduce((most, { label }) => Math.max(most, label.length), 0);
  const each = Math.max(1, Math.ceil((Math.min(longest, SHORT) * LETTER + 6) / step));
  const letters = Math.max(SHORT, Math.floor((each * step - 6) / LETTER));
  return ticks
    .filter((_, at) => at % each === 0)
    .map((tick) => ({ ...tick, label: shortened(tick.label, letters) }));
}

const SHORT = 9;

/** Room for the labels at the left, from their length: text is not measured, so that it is known at once. */
export function leftMargin(labels: readonly string[], width: number): number {
  const longest = labels.reduce((most, label) => Math.max(most, label.length), 0);
  return Math.round(Math.min(width * 0.36, Math.max(28, longest * LETTER + 14)));
}

function shortened(text: string, letters: number): string {
  return text.length > letters ? `${text.slice(0, Math.max(1, letters - 1))}…` : text;
}
