import type { ReactNode } from "react";
import styles from "./Badge.module.css";
import { classes } from "./classes";
import { words } from "./format";
import { type Tone, toneOf } from "./tones";
import { Untrusted } from "./Untrusted";

export function Badge({ tone = "wait", children }: { tone?: Tone; children: ReactNode }) {
  return <span className={classes(styles.badge, styles[tone])}>{children}</span>;
}

/** A verdict, or the state of a node, a search, an ask or a worker, in its colour. */
export function StateBadge({ state }: { state: string | null | undefined }) {
  if (!state) return null;
  return (
    <Badge tone={toneOf(state)}>
      <Untrusted text={words(state)} />
    </Badge>
  );
}
