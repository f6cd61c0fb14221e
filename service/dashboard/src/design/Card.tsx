import { type ReactNode, useId } from "react";
import styles from "./Card.module.css";

interface CardProps {
  title?: ReactNode;
  /** What stands at the right of the title. */
  actions?: ReactNode;
  children: ReactNode;
}

/** A panel; with a title it is a region of that name. */
export function Card({ title, actions, children }: CardProps) {
  const id = useId();
  if (!title) return <div className={styles.card}>{children}</div>;
  return (
    <section className={styles.card} aria-labelledby={id}>
      <div className={styles.head}>
        <h2 id={id} className={styles.title}>
          {title}
        </h2>
        {actions && <div className={styles.actions}>{actions}</div>}
      </div>
      {children}
    </section>
  );
}

/** A figure with its name; place several in a `Stats`. */
export function Stat({ label, children, note }: { label: ReactNode; children: ReactNode; note?: ReactNode }) {
  return (
    <div className={styles.stat}>
      <dt>{label}</dt>
      <dd>{children}</dd>
      {note && <dd className={styles.note}>{note}</dd>}
    </div>
  );
}

export function Stats({ children }: { children: ReactNode }) {
  return <dl className={styles.stats}>{children}</dl>;
}
