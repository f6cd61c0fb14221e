import { memo, useEffect, useMemo, useRef, useState } from "react";
import styles from "./Code.module.css";
import { classes } from "./classes";
import { type CodeLanguage, highlightLines, type Token } from "./highlight";
import { CopyButton } from "./Small";
import { Escaped } from "./Untrusted";

interface CodeProps {
  code: string;
  language?: CodeLanguage;
  label: string;
  /** No numbers for what is not code: logs, prompts. */
  numbers?: boolean;
  wrap?: boolean;
}

/** Code to read: highlighted, with line numbers that are not copied, invisible characters as escapes. */
export function Code({ code, language = "text", label, numbers = true, wrap = false }: CodeProps) {
  const lines = useMemo(
    () => highlightLines(code.replace(/\r\n?/g, "\n").replace(/\n$/, ""), language),
    [code, language],
  );
  const chunks = useMemo(
    () =>
      Array.from({ length: Math.ceil(lines.length / CHUNK) }, (_, at) =>
        lines.slice(at * CHUNK, (at + 1) * CHUNK),
      ),
    [lines],
  );
  return (
    <div className={styles.frame}>
      <div className={styles.copy}>
        <CopyButton text={code} />
      </div>
      {/* biome-ignore lint/a11y/noNoninteractiveTabindex: a region that scrolls must be reachable by keyboard */}
      <section className={styles.scroll} aria-label={label} tabIndex={0}>
        <pre className={classes(styles.code, wrap && styles.wrap)}>
          {chunks.map((chunk, at) => (
            // biome-ignore lint/suspicious/noArrayIndexKey: a chunk is its place
            <Chunk key={at} lines={chunk} first={at * CHUNK} numbers={numbers} />
          ))}
        </pre>
      </section>
    </div>
  );
}

const CHUNK = 100;
const AHEAD = "800px 0px";

interface ChunkProps {
  lines: readonly (readonly Token[])[];
  /** Lines before it. */
  first: number;
  numbers: boolean;
}

/** Some lines of code. Until they come near, they are one plain text: it can be found and copied, and costs little. */
const Chunk = memo(function Chunk({ lines, first, numbers }: ChunkProps) {
  const [near, setNear] = useState(first === 0 || typeof IntersectionObserver === "undefined");
  const element = useRef<HTMLSpanElement>(null);
  useEffect(() => {
    const { current } = element;
    if (near || !current) return;
    const observer = new IntersectionObserver(
      (seen) => seen.some((entry) => entry.isIntersecting) && setNear(true),
      { root: current.closest("section"), rootMargin: AHEAD },
    );
    observer.observe(current);
    return () => observer.disconnect();
  }, [near]);
  if (!near) {
    const text = lines.map((line) => `${line.map((token) => token.text).join("")}\n`).join("");
    return (
      <span ref={element} className={styles.far} data-numbers={numbers || undefined}>
        <Escaped text={text} />
      </span>
    );
  }
  return lines.map((tokens, at) => (
    // biome-ignore lint/suspicious/noArrayIndexKey: a line is its number
    <span key={at} className={styles.line} data-line={numbers ? first + at + 1 : undefined}>
      <Tokens tokens={tokens} />
      {"\n"}
    </span>
  ));
});

/** One line's tokens, for views that lay out lines of their own, such as a difference. */
export function Tokens({ tokens }: { tokens: readonly Token[] }) {
  return tokens.map((token, at) => (
    // biome-ignore lint/suspicious/noArrayIndexKey: tokens have no other identity
    <span key={at} className={token.kind ? styles[token.kind] : undefined}>
      <Escaped text={token.text} />
    </span>
  ));
}
