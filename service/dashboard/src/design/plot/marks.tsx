import { area, curveStepAfter, line } from "d3-shape";
import { visible } from "../escapes";
import { LETTER, type PlotTone, paint, usePlot } from "./context";
import styles from "./Plot.module.css";
import type { Place } from "./scales";

export interface Point {
  x: Place;
  y: Place;
}

/** A line that stays at a value until the next: best so far. `low` and `high` of a point draw its interval behind. */
export function StepLine({
  points,
  tone = "accent",
}: {
  points: readonly (Point & { low?: number | null; high?: number | null })[];
  tone?: PlotTone;
}) {
  const { x, y, clip } = usePlot();
  const path = line<Point>(
    (point) => x.at(point.x),
    (point) => y.at(point.y),
  ).curve(curveStepAfter)([...points]);
  const band = area<Point & { low?: number | null; high?: number | null }>(
    (point) => x.at(point.x),
    (point) => y.at(point.low ?? point.y),
    (point) => y.at(point.high ?? point.y),
  ).curve(curveStepAfter)([...points]);
  return (
    <g clipPath={`url(#${clip})`}>
      {band && <path d={band} className={styles.band} style={{ fill: paint(tone) }} />}
      {path && <path d={path} className={styles.line} style={{ stroke: paint(tone) }} />}
    </g>
  );
}

/** A line from point to point; a roofline's ceiling, a bandwidth against size. */
export function Line({
  points,
  tone = "muted",
  dashed = false,
}: {
  points: readonly Point[];
  tone?: PlotTone;
  dashed?: boolean;
}) {
  const { x, y, clip } = usePlot();
  const path = line<Point>(
    (point) => x.at(point.x),
    (point) => y.at(point.y),
  )([...points]);
  if (!path) return null;
  return (
    <path
      d={path}
      clipPath={`url(#${clip})`}
      className={styles.line}
      data-dashed={dashed || undefined}
      style={{ stroke: paint(tone) }}
    />
  );
}

export type DotShape = "circle" | "ring" | "cross" | "square" | "diamond";

export interface DotMark extends Point {
  key: string;
  tone?: PlotTone;
  /** Shape carries what colour alone would: a ring for what is not verified, a cross for what failed. */
  shape?: DotShape;
  /** Pixels; 4 unless told. */
  radius?: number;
  /** Said beside the dot. */
  label?: string;
}

/** From so many on, dots without a label are one element for each look: a browser is slow with thousands. */
const MANY = 500;

export function Dots({ dots }: { dots: readonly DotMark[] }) {
  if (dots.length < MANY) return dots.map(({ key, ...dot }) => <Dot key={key} {...dot} />);
  const looks = new Map<string, DotMark[]>();
  for (const dot of dots) {
    if (dot.label) continue;
    const look = `${dot.tone} ${dot.shape} ${dot.radius}`;
    const alike = looks.get(look);
    if (alike) alike.push(dot);
    else looks.set(look, [dot]);
  }
  return (
    <>
      {[...looks].map(([look, alike]) => (
        <Alike key={look} dots={alike} />
      ))}
      {dots
        .filter(({ label }) => label)
        .map(({ key, ...dot }) => (
          <Dot key={key} {...dot} />
        ))}
    </>
  );
}

function Dot({ tone, shape = "circle", radius = 4, label, ...point }: Omit<DotMark, "key">) {
  const { x, y, width } = usePlot();
  const [cx, cy] = [x.at(point.x), y.at(point.y)];
  const right = cx > width * 0.75;
  return (
    <g transform={`translate(${cx},${cy})`} style={{ color: paint(tone) }}>
      <Shape shape={shape} radius={radius} />
      {label && (
        <text
          x={right ? -radius - 4 : radius + 4}
          dy="-0.45em"
          textAnchor={right ? "end" : "start"}
          className={styles.note}
        >
          {visible(label)}
        </text>
      )}
    </g>
  );
}

/** Dots that look the same, as one path. */
function Alike({ dots }: { dots: readonly DotMark[] }) {
  const { x, y } = usePlot();
  const [{ tone, shape = "circle", radius = 4 } = {} as DotMark] = dots;
  const d = dots
    .map((dot) => `M${x.at(dot.x).toFixed(1)},${y.at(dot.y).toFixed(1)}${outline(shape, radius)}`)
    .join("");
  return (
    <path
      d={d}
      className={FILLED.has(shape) ? styles.filled : styles.hollow}
      style={{ color: paint(tone) }}
    />
  );
}

const FILLED: ReadonlySet<DotShape> = new Set(["circle", "square", "diamond"]);

/** A shape as relative moves of a path that stands at its middle. */
function outline(shape: DotShape, r: number): string {
  const round = (radius: number) =>
    `m${-radius},0a${radius},${radius} 0 1,0 ${2 * radius},0a${radius},${radius} 0 1,0 ${-2 * radius},0`;
  switch (shape) {
    case "circle":
      return round(r);
    case "ring":
      return round(r - 0.75);
    case "cross":
      return `m${-r},${-r}l${2 * r},${2 * r}m${-2 * r},0l${2 * r},${-2 * r}`;
    case "square":
      return `m${-r},${-r}h${2 * r}v${2 * r}h${-2 * r}z`;
    case "diamond":
      return `m0,${-r * 1.3}l${r * 1.3},${r * 1.3}l${-r * 1.3},${r * 1.3}l${-r * 1.3},${-r * 1.3}z`;
  }
}

export function Shape({ shape, radius }: { shape: DotShape; radius: number }) {
  return (
    <path d={`M0,0${outline(shape, radius)}`} className={FILLED.has(shape) ? styles.filled : styles.hollow} />
  );
}

interface IntervalMark {
  key: string;
  /** The place on the other axis: a row of a band axis, or a number. */
  at: Place;
  low: number;
  high: number;
  value?: number;
  tone?: PlotTone;
  /** The part of the row's height that is this one's, from 0 to 1. */
  lane?: readonly [number, number];
}

/** Intervals with end caps and a dot at the value; along x where `along="x"` (rows), else along y (error bars). */
export function Intervals({ marks, along = "x" }: { marks: readonly IntervalMark[]; along?: "x" | "y" }) {
  const { x, y, clip } = usePlot();
  const [main, other] = along === "x" ? [x, y] : [y, x];
  const cap = Math.min(5, other.band ? other.band / 3 : 5);
  return (
    <g clipPath={`url(#${clip})`}>
      {marks.map(({ key, at, low, high, value, tone, lane: [start, end] = [0, 1] }) => {
        const [a, b] = [main.at(low), main.at(high)];
        const o = other.at(at) + ((start + end) / 2 - 0.5) * other.band;
        const d =
          along === "x"
            ? `M${a},${o}H${b}M${a},${o - cap}V${o + cap}M${b},${o - cap}V${o + cap}`
            : `M${o},${a}V${b}M${o - cap},${a}H${o + cap}M${o - cap},${b}H${o + cap}`;
        const v = value === undefined ? null : main.at(value);
        return (
          <g key={key} style={{ color: paint(tone) }}>
            <path d={d} className={styles.interval} />
            {v !== null && (
              <circle
                cx={along === "x" ? v : o}
                cy={along === "x" ? o : v}
                r={3.5}
                className={styles.filled}
              />
            )}
          </g>
        );
      })}
    </g>
  );
}

export interface BarMark {
  key: string;
  /** The row of a band axis on y. */
  row: string;
  from: number;
  to: number;
  tone?: PlotTone;
  /** Hatched: what failed, what is not final. */
  hatched?: boolean;
  /** The part of the row's height that is this bar's, from 0 to 1; the whole row unless told. */
  lane?: readonly [number, number];
  /** Said at the bar's end: its value. */
  label?: string;
}

/** Horizontal bars in the rows of a band axis; at least two pixels wide, so that nothing that happened is invisible. */
export function Bars({ bars }: { bars: readonly BarMark[] }) {
  const { x, y, clip } = usePlot();
  return (
    <g clipPath={`url(#${clip})`}>
      {bars.map(({ key, row, from, to, tone, hatched, lane: [top, bottom] = [0, 1], label }) => {
        const left = x.at(from);
        const start = y.at(row) - y.band / 2;
        return (
          <g key={key}>
            <rect
              x={left}
              y={start + top * y.band}
              width={Math.max(2, x.at(to) - left)}
              height={Math.max(1, (bottom - top) * y.band - (bottom - top < 1 ? 1 : 0))}
              rx={1.5}
              className={styles.bar}
              data-hatched={hatched || undefined}
              style={{ color: paint(tone) }}
            />
            {label && <BarLabel at={x.at(to)} y={start + ((top + bottom) / 2) * y.band} text={label} />}
          </g>
        );
      })}
    </g>
  );
}

/** Behind the bar's end, or within the bar where there is no room behind it. */
function BarLabel({ at, y, text }: { at: number; y: number; text: string }) {
  const { width } = usePlot();
  const inside = at + text.length * LETTER + 8 > width;
  return (
    <text
      x={inside ? at - 8 : at + 8}
      y={y}
      dy="0.32em"
      textAnchor={inside ? "end" : "start"}
      className={styles.note}
    >
      {visible(text)}
    </text>
  );
}

/** A reference across the whole plot at a value of one axis, named at its end. */
export function Rule({
  x: atX,
  y: atY,
  label,
  tone = "muted",
}: {
  x?: number;
  y?: number;
  label?: string;
  tone?: PlotTone;
}) {
  const { x, y, width, height } = usePlot();
  const vertical = atX !== undefined;
  const at = vertical ? x.at(atX) : y.at(atY ?? 0);
  if (!(at >= 0 && at <= (vertical ? width : height))) return null;
  return (
    <g style={{ color: paint(tone) }}>
      <line
        {...(vertical ? { x1: at, x2: at, y2: height } : { y1: at, y2: at, x2: width })}
        className={styles.rule}
      />
      {label && (
        <text
          x={vertical ? at + 4 : width}
          y={vertical ? 10 : at - 5}
          textAnchor={vertical ? "start" : "end"}
          className={styles.note}
        >
          {visible(label)}
        </text>
      )}
    </g>
  );
}
