import { classes, format, Untrusted, visible } from "../../design";
import type { Bar, Fate } from "./bars";
import styles from "./Campaigns.module.css";

const CLASSES: Readonly<Record<Fate, string | undefined>> = {
  stays: styles.stays,
  "no gain": styles.out,
  searching: styles.searching,
  "not searched": styles.unsearched,
  rest: styles.rest,
};

/** Times of the model, one bar below the other; what a bar is made of stands below it in words. */
export function Bars({ bars }: { bars: readonly Bar[] }) {
  const longest = Math.max(...bars.map(({ ms }) => ms));
  return (
    <dl className={styles.bars}>
      {bars.map((bar) => (
        <div key={bar.label}>
          <dt>{bar.label}</dt>
          <dd>
            <div className={styles.track}>
              <div className={styles.bar} style={{ width: `${longest > 0 ? (100 * bar.ms) / longest : 0}%` }}>
                <Segments bar={bar} />
              </div>
            </div>
            <span className={styles.time}>{format.micros(bar.ms * 1e3)}</span>
          </dd>
          {bar.parts.length > 0 && <Key bar={bar} />}
        </div>
      ))}
    </dl>
  );
}

function Segments({ bar }: { bar: Bar }) {
  if (bar.parts.length === 0) return <span className={classes(styles.segment, styles.whole)} />;
  return bar.parts.map(({ key, name, share, fate }) => (
    <span
      key={key}
      className={classes(styles.segment, CLASSES[fate])}
      style={{ flexGrow: share }}
      title={`${visible(name)}: ${format.percent(share)}`}
    />
  ));
}

function Key({ bar }: { bar: Bar }) {
  return (
    <dd>
      <ul className={styles.key} aria-label={`${bar.label}, by regions`}>
        {bar.parts.map(({ key, name, share, fate }) => (
          <li key={key}>
            <span className={classes(styles.sign, CLASSES[fate])} aria-hidden="true" />
            <span>
              <Untrusted text={name} /> <span className={styles.detail}>{format.percent(share)}</span>
              {fate !== "rest" && <span className="visually-hidden">, {fate}</span>}
            </span>
          </li>
        ))}
      </ul>
    </dd>
  );
}
