import { format } from "../design";
import styles from "./SpeedUp.module.css";

type Ci95 = readonly number[] | null | undefined;

const NAMES: Readonly<Record<string, string>> = {
  eager: "eager",
  compile: "torch.compile",
  max_autotune: "max-autotune",
};

const ORDER = Object.keys(NAMES);

/** A baseline as people call it; one that is not known by its own name. */
export function baselineName(name: string): string {
  return NAMES[name] ?? format.words(name);
}

/** Baselines in the order in which they are shown everywhere. */
export function inOrder(names: readonly string[]): string[] {
  const place = (name: string) => (ORDER.includes(name) ? ORDER.indexOf(name) : ORDER.length);
  return [...names].sort((a, b) => place(a) - place(b) || a.localeCompare(b, "en"));
}

/** A speed-up, and below it its 95 % interval. */
export function SpeedUp({ value, ci95 }: { value: number | null | undefined; ci95?: Ci95 }) {
  const [low, high] = ci95 ?? [];
  return (
    <span className={styles.speedup}>
      <span className={styles.value}>{format.ratio(value)}</span>
      {value !== null && value !== undefined && low !== undefined && high !== undefined && (
        <span className={styles.interval} title="95 % interval">
          {low.toFixed(2)}–{high.toFixed(2)}
        </span>
      )}
    </span>
  );
}

/** A speed-up over the fastest baseline, with those over each baseline below it on demand. */
export function SpeedUps({
  value,
  ci95,
  each,
  intervals,
}: {
  value: number | null | undefined;
  ci95?: Ci95;
  each: Readonly<Record<string, number>>;
  intervals: Readonly<Record<string, readonly number[]>>;
}) {
  const names = inOrder(Object.keys(each));
  return (
    <>
      <SpeedUp value={value} ci95={ci95} />
      {names.length > 0 && (
        <details className={styles.each}>
          <summary>each baseline</summary>
          <dl>
            {names.map((name) => (
              <div key={name}>
                <dt>{baselineName(name)}</dt>
                <dd>{format.speedup(each[name], intervals[name])}</dd>
              </div>
            ))}
          </dl>
        </details>
      )}
    </>
  );
}
