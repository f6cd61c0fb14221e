import { type ReactNode, useEffect } from "react";
import { asProblem } from "../api/problem";
import { ErrorNotice, Skeleton, visible } from "../design";
import styles from "./Page.module.css";

interface PageProps {
  /** The document's title, as text. */
  title: string;
  /** The heading, where it is more than the title. */
  heading?: ReactNode;
  /** Beside the heading: buttons, badges. */
  actions?: ReactNode;
  children: ReactNode;
}

/** What every page has: one h1, its title in the browser's tab, and what can be done at the right of it. */
export function Page({ title, heading, actions, children }: PageProps) {
  useEffect(() => {
    document.title = `${visible(title)} · Warpsmith`;
  }, [title]);
  return (
    <div className={styles.page}>
      <div className={styles.head}>
        <h1 className={styles.heading}>{heading ?? title}</h1>
        {actions && <div className={styles.actions}>{actions}</div>}
      </div>
      {children}
    </div>
  );
}

interface Loaded<Data> {
  data: Data | undefined;
  error: unknown;
  refetch: () => unknown;
}

/**
 * What a query brought, or that it loads, or why it failed. What was read before stays in view when reading it again
 * fails, with the failure above it.
 */
export function Loading<Data>({
  query,
  children,
}: {
  query: Loaded<Data>;
  children: (data: Data) => ReactNode;
}) {
  const { data, error, refetch } = query;
  return (
    <>
      {error !== null && error !== undefined && (
        <ErrorNotice
          error={error}
          safe={data !== undefined && "What is shown was read before."}
          {...(asProblem(error).status !== 404 && { onRetry: () => void refetch() })}
        />
      )}
      {data !== undefined ? children(data) : !error && <Skeleton lines={6} />}
    </>
  );
}
