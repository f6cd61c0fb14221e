import { type PlotTone, paint } from "./context";
import { type DotShape, Shape } from "./marks";
import styles from "./Plot.module.css";

export interface LegendItem {
  label: string;
  tone: PlotTone;
  /** As the mark is drawn; a square unless told. */
  shape?: DotShape | "line" | "dashed" | "hatched";
}

export function Legend({ items }: { items: readonly LegendItem[] }) {
  return (
    <ul className={styles.legend}>
      {items.map(({ label, tone, shape = "square" }) => (
        <li key={label}>
          <svg width={14} height={12} viewBox="-7 -6 14 12" aria-hidden="true" style={{ color: paint(tone) }}>
            <Sign shape={shape} />
          </svg>
          {label}
        </li>
      ))}
    </ul>
  );
}

function Sign({ shape }: { shape: NonNullable<LegendItem["shape"]> }) {
  if (shape === "line" || shape === "dashed")
    return <line x1={-7} x2={7} className={styles.rule} data-solid={shape === "line" || undefined} />;
  if (shape === "hatched")
    return <rect x={-5} y={-4} width={10} height={8} className={styles.bar} data-hatched />;
  return <Shape shape={shape} radius={4} />;
}
