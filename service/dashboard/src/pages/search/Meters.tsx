import { Meter } from "../../design";
import type { Allowance } from "./limits";
import styles from "./Search.module.css";

/** Spending against each limit; what has no limit is a number alone. */
export function Meters({ allowances }: { allowances: readonly Allowance[] }) {
  return (
    <dl className={styles.meters}>
      {allowances.map(({ name, label, used, limit, text }) => (
        <div key={name}>
          <dt>{label}</dt>
          <dd>
            <span>{text}</span>
            {limit !== null && used !== null && <Meter label={label} text={text} value={used} max={limit} />}
          </dd>
        </div>
      ))}
    </dl>
  );
}
