import { type ReactNode, useId } from "react";
import styles from "./Node.module.css";

/** A part of a view under a heading of its own. */
export function Section({
  title,
  actions,
  children,
}: {
  title: ReactNode;
  actions?: ReactNode;
  children: ReactNode;
}) {
  const id = useId();
  return (
    <section aria-labelledby={id} className={styles.section}>
      <div className={styles.sectionHead}>
        <h3 id={id}>{title}</h3>
        {actions && <div className={styles.row}>{actions}</div>}
      </div>
      {children}
    </section>
  );
}
