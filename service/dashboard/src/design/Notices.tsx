import type { ReactNode } from "react";
import { asProblem, inWords } from "../api/problem";
import { Button } from "./Button";
import styles from "./Notices.module.css";
import { Untrusted } from "./Untrusted";

/** In place of what is not there yet: says what to do next. */
export function EmptyState({
  title,
  children,
  action,
}: {
  title: ReactNode;
  children?: ReactNode;
  action?: ReactNode;
}) {
  return (
    <div className={styles.empty}>
      <p className={styles.title}>{title}</p>
      {children && <div className={styles.text}>{children}</div>}
      {action}
    </div>
  );
}

interface ErrorNoticeProps {
  error: unknown;
  /** What was tried: "The search was not started". */
  what?: ReactNode;
  /** What is safe: "Nothing was stored." */
  safe?: ReactNode;
  onRetry?: () => void;
}

/** What happened, in the service's own words, which field is at fault, and what is safe. */
export function ErrorNotice({ error, what, safe, onRetry }: ErrorNoticeProps) {
  const problem = asProblem(error);
  return (
    <div role="alert" className={styles.error}>
      <p className={styles.title}>{what ?? <Untrusted text={problem.title} />}</p>
      {problem.errors.length > 0 ? (
        <ul className={styles.fields}>
          {problem.errors.map((field) => (
            <li key={`${field.field}:${inWords(field.expected)}`}>
              <code>
                <Untrusted text={field.field} />
              </code>
              : found <Untrusted text={JSON.stringify(field.found ?? null)} />, expected{" "}
              <Untrusted text={inWords(field.expected)} />
            </li>
          ))}
        </ul>
      ) : (
        <p>
          <Untrusted text={problem.detail} />
        </p>
      )}
      {safe && <p>{safe}</p>}
      {onRetry && <Button onClick={onRetry}>Try again</Button>}
    </div>
  );
}
