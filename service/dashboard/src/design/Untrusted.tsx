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

/** Such texts as a list; two may be alike, and their order never changes. */
export function UntrustedList({ texts }: { texts: readonly string[] }) {
  return (
    <ul>
      {texts.map((text, at) => (
        // biome-ignore lint/suspicious/noArrayIndexKey: texts have no other identity
        <li key={at}>
          <Untrusted text={text} />
        </li>
      ))}
    </ul>
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
