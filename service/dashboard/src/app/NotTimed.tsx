import { Untrusted } from "../design";
import styles from "./NotTimed.module.css";

/** In place of the time of a baseline: that there is none, and why. */
export function NotTimed({ why }: { why: string }) {
  return (
    <span className={styles.cell}>
      not timed
      <span className={styles.why}>
        <Untrusted text={why} />
      </span>
    </span>
  );
}
