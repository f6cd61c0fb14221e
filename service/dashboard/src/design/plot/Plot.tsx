import { type ReactNode, useId, useLayoutEffect, useMemo, useRef, useState } from "react";
import { IconButton } from "../Button";
import { Dialog } from "../Dialog";
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
  /** Pixels of the area within the axes, such as so many for each row; by default it grows with the width. */
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

/** Two axes and what stands between them, as wide as there is room; a button opens it as large as the window. */
export function Plot<T extends Target = Target>({ onSelect, ...plot }: PlotProps<T>) {
  const [enlarged, setEnlarged] = useState(false);
  return (
    <>
      <Drawing {...plot} {...(onSelect && { onSelect })} onEnlarge={() => setEnlarged(true)} />
      <Dialog whole open={enlarged} title={plot.title} onClose={() => setEnlarged(false)}>
        <Drawing
          {...plot}
          {...(onSelect && {
            onSelect: (target: T) => {
              setEnlarged(false);
              onSelect(target);
            },
          })}
        />
      </Dialog>
    </>
  );
}

/** The plot itself; without `onEnlarge` it is the enlarged one, as high as it is let be. */
function Drawing<T extends Target>({
  title,
  desc,
  actions,
  x: xSpec,
  y: ySpec,
  height: asked,
  legend,
  table,
  targets = NOTHING,
  tip,
  onSelect,
  onBrush,
  onEnlarge,
  children,
}: PlotProps<T> & { onEnlarge?: () => void }) {
  const id = useId();
  const [canvas, outer, room] = useSize();
  const height = onEnlarge ? (asked ?? heightFor(outer)) : Math.max(LEAST, room - TOP - BOTTOM);
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
      <figure className={styles.plot} data-enlarged={!onEnlarge || undefined} aria-labelledby={`${id}-title`}>
        <figcaption className={styles.head}>
          <h3 id={`${id}-title`} className={onEnlarge ? undefined : "visually-hidden"}>
            {title}
          </h3>
          <div className={styles.actions}>
            {actions}
            {onEnlarge && <IconButton label={`Enlarge: ${title}`} icon={<Corners />} onClick={onEnlarge} />}
          </div>
        </figcaption>
        {legend && <Legend items={legend} />}
        <div
          ref={canvas}
          className={styles.canvas}
          style={onEnlarge ? { height: height + TOP + BOTTOM } : undefined}
        >
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
              <Axes xLabel={xSpec.label} yLabel={ySpec.label} left={left} right={RIGHT} />
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

function Corners() {
  return (
    <svg width={14} height={14} viewBox="0 0 14 14" className={styles.corners} aria-hidden="true">
      <path d="M1,5V1H5M9,1H13V5M13,9V13H9M5,13H1V9" />
    </svg>
  );
}

const FIRST_WIDTH = 640;
const LEAST = 240;
const MOST = 520;

/** The height of an area that is that wide: flat enough that a whole plot is seen at once on a laptop. */
export function heightFor(width: number): number {
  return Math.round(Math.min(MOST, Math.max(LEAST, width * 0.36)));
}

/** An element with its width and height in pixels, kept as they change. */
function useSize() {
  const element = useRef<HTMLDivElement>(null);
  const [size, setSize] = useState<readonly [number, number]>([FIRST_WIDTH, LEAST]);
  useLayoutEffect(() => {
    const { current } = element;
    if (!current || typeof ResizeObserver === "undefined") return;
    const measure = () => setSize([Math.round(current.clientWidth) || FIRST_WIDTH, current.clientHeight]);
    measure();
    const observer = new ResizeObserver(measure);
    observer.observe(current);
    return () => observer.disconnect();
  }, []);
  return [element, ...size] as const;
}
