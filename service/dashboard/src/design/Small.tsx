import { type CSSProperties, useEffect, useState } from "react";
import { Button } from "./Button";
import { ago, moment, NONE } from "./format";
import styles from "./Small.module.css";
import { useToast } from "./Toast";

/** A place held while something loads; `lines` tall. */
export function Skeleton({ lines = 3 }: { lines?: number }) {
  return (
    <div role="status" aria-label="Loading" className={styles.skeleton}>
      {Array.from({ length: lines }, (_, at) => (
        // biome-ignore lint/suspicious/noArrayIndexKey: the lines are all alike
        <span key={at} />
      ))}
    </div>
  );
}

interface MeterProps {
  label: string;
  /** In words, as a screen reader says it: "12 of 40 candidates". */
  text: string;
  value: number;
  max: number;
  /** `ok` where full is good; else fuller than 90 % warns. */
  tone?: "ok";
}

/** How much of a limit is used or reached. */
export function Meter({ label, text, value, max, tone }: MeterProps) {
  const share = max > 0 ? Math.min(1, Math.max(0, value / max)) : 0;
  return (
    // biome-ignore lint/a11y/useSemanticElements: <meter> cannot be styled alike in all browsers
    <div
      role="meter"
      aria-label={label}
      aria-valuemin={0}
      aria-valuemax={max}
      aria-valuenow={Math.min(value, max)}
      aria-valuetext={text}
      className={styles.meter}
      data-full={(!tone && share > 0.9) || undefined}
      data-tone={tone}
      style={{ "--share": share } as CSSProperties}
    />
  );
}

/** Puts text on the clipboard and says so. */
export function CopyButton({ text, label = "Copy" }: { text: string; label?: string }) {
  const toast = useToast();
  async function copy() {
    try {
      await navigator.clipboard.writeText(text);
      toast("Copied");
    } catch {
      toast("The browser did not allow copying. Select the text instead.", { bad: true });
    }
  }
  return (
    <Button kind="quiet" onClick={copy}>
      {label}
    </Button>
  );
}

/** A moment from epoch seconds: how long ago, and in full as the title. */
export function Time({ at }: { at: number | null | undefined }) {
  const ticked = useNow();
  if (at === null || at === undefined) return <span>{NONE}</span>;
  // What happened since the last tick is not to come.
  const now = at <= Date.now() / 1000 ? Math.max(ticked, at) : ticked;
  return (
    <time dateTime={new Date(at * 1000).toISOString()} title={moment(at)}>
      {ago(at, now)}
    </time>
  );
}

/** Epoch seconds, anew every `everyMs`. */
export function useNow(everyMs = 15_000): number {
  const [now, setNow] = useState(() => Date.now() / 1000);
  useEffect(() => {
    const timer = setInterval(() => setNow(Date.now() / 1000), everyMs);
    return () => clearInterval(timer);
  }, [everyMs]);
  return now;
}
