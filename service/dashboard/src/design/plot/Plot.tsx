import { type ReactNode, useId, useLayoutEffect, useMemo, useRef, useState } from "react";
import { Axes, leftMargin } from "./Axes";
import { PlotContext } from "./context";
import { Legend, type LegendItem } from "./Legend";
import type { Target } from "./nearest";
import { Overlay } from "./Overlay";
import styles from "./Plot.module.css";
import { PlotTable, type PlotTableProps } from "./PlotTable";
import { type AxisSpec, makeScale } from "./scales";

const TOP = 24;
const BOTTOM = 40;
const RIGHT = 16;

interface PlotProps<T extends Target> {
  /** The plot's name. */
  title: string;
  /** What is to be seen, in words, for those who do not see it. */
  desc: string;
  /** Beside the title: a choice of axis, a range. */
  actions?: ReactNode;
  x: AxisSpec;
  y: AxisSpec;
  /** Pixels of the area within the axes. */
  height?: number;
  legend?: readonly LegendItem[];
  /** The same figures as a table, which opens below. */
  table?: PlotTableProps;
  /** What can be pointed at, and what is then said of it. */
  targets?: readonly T[];
  tip?: (target: T) => ReactNode;
  onSelect?: (target: T) => void;
  /** A span of x was dragged over. */
  onBrush?: (from: number, to: number) => void;
  /** Marks: they are drawn in the order given. */
  children: ReactNode;
}

const NOTHING: readonly never[] = [];

/** Two axes and what stands between them, as wide as there is room. */
export function Plot<T extends Target = Target>({
  title,
  desc,
  actions,
  x: xSpec,
  y: ySpec,
  height = 240,
  legend,
  table,
  targets = NOTHING,
  tip,
  onSelect,
  onBrush,
  children,
}: PlotProps<T>) {
  const id = useId();
  const [canvas, outer] = useWidth();
  const clip = `${id}-clip`;
  const { area, left } = useMemo(() => {
    const y = makeScale(ySpec, ySpec.kind === "band" ? [0, height] : [height, 0], 44);
    const margin = leftMargin(
      y.ticks.map((tick) => tick.label),
      outer,
    );
    const width = Math.max(40, outer - margin - RIGHT);
    return { area: { x: makeScale(xSpec, [0, width], 84), y, width, height, clip }, left: margin };
  }, [xSpec, ySpec, height, outer, clip]);
  return (
    <PlotContext value={area}>
      <figure className={styles.plot} aria-labelledby={`${id}-title`}>
        <figcaption className={styles.head}>
          <h3 id={`${id}-title`}>{title}</h3>
          {actions && <div className={styles.actions}>{actions}</div>}
        </figcaption>
        {legend && <Legend items={legend} />}
        <div ref={canvas} className={styles.canvas} style={{ height: height + TOP + BOTTOM }}>
          <svg
            role="img"
            aria-labelledby={`${id}-svg ${id}-desc`}
            width={outer}
            height={height + TOP + BOTTOM}
            className={styles.svg}
          >
            <title id={`${id}-svg`}>{title}</title>
            <desc id={`${id}-desc`}>{desc}</desc>
            <defs>
              <clipPath id={clip}>
                <rect x={-1} y={-6} width={area.width + 2} height={height + 12} />
              </clipPath>
            </defs>
            <g transform={`translate(${left},${TOP})`}>
              <Axes xLabel={xSpec.label} yLabel={ySpec.label} left={left} />
              {children}
            </g>
          </svg>
          {(targets.length > 0 || onBrush) && (
            <Overlay
              label={title}
              left={left}
              top={TOP}
              targets={targets}
              tip={tip}
              onSelect={onSelect}
              onBrush={onBrush}
            />
          )}
        </div>
        {table && <PlotTable {...table} />}
      </figure>
    </PlotContext>
  );
}

const FIRST_WIDTH = 640;

/** An element and its width in pixels, kept as it changes. */
function useWidth() {
  const element = useRef<HTMLDivElement>(null);
  const [width, setWidth] = useState(FIRST_WIDTH);
  useLayoutEffect(() => {
    const { current } = element;
    if (!current || typeof ResizeObserver === "undefined") return;
    const measure = () => setWidth(Math.round(current.clientWidth) || FIRST_WIDTH);
    measure();
    const observer = new ResizeObserver(measure);
    observer.observe(current);
    return () => observer.disconnect();
  }, []);
  return [element, width] as const;
}
