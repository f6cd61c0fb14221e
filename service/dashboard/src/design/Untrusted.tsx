import { pieces } from "./escapes";
import styles from "./Untrusted.module.css";

/** Text that somebody else wrote, as a text node: invisible and bidirectional characters are shown as escapes, and
 * its direction stays its own. */
export function Untrusted({ text }: { text: string | null | undefined }) {
  if (!text) return null;
  return (
    <bdi>
      <Escaped text={text} />
    </bdi>
  );
}

/** The same without isolation, for tokens within a line of code. */
export function Escaped({ text }: { text: string }) {
  return pieces(text).map((piece, at) =>
    piece.escaped ? (
      // biome-ignore lint/suspicious/noArrayIndexKey: pieces of one text have no other identity
      <span key={at} className={styles.escape} title="An invisible character">
        {piece.text}
      </span>
    ) : (
      piece.text
    ),
  );
}
