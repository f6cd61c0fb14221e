/** Characters that change what others look like, or look like nothing: bidirectional and other format controls, C0 and
 * C1 controls but tab and line ends, zero-width and blank letters, tags, variation selectors, private use and lone
 * surrogates. */
// U+2800 is a Braille cell without dots: it looks blank, but Unicode does not count it as ignorable.
export const INVISIBLE = /[\p{Cc}\p{Cf}\p{Co}\p{Cs}\p{Default_Ignorable_Code_Point}\u2028\u2029\u2800]/u;
const PLAIN = new Set(["\t", "\n", "\r"]);

interface Piece {
  text: string;
  escaped: boolean;
}

/** Whether a character is shown as an escape. */
export function isInvisible(character: string): boolean {
  return !PLAIN.has(character) && INVISIBLE.test(character);
}

/** `U+202E` as the visible text `\u{202e}`. */
export function escapeOf(character: string): string {
  return `\\u{${(character.codePointAt(0) ?? 0).toString(16).padStart(4, "0")}}`;
}

/** The text in pieces, each either as it was or the escape of one character. */
export function pieces(text: string): Piece[] {
  if (!hasInvisible(text)) return text === "" ? [] : [{ text, escaped: false }];
  const found: Piece[] = [];
  let plain = "";
  for (const character of text) {
    if (!isInvisible(character)) {
      plain += character;
      continue;
    }
    if (plain) found.push({ text: plain, escaped: false });
    plain = "";
    found.push({ text: escapeOf(character), escaped: true });
  }
  if (plain) found.push({ text: plain, escaped: false });
  return found;
}

/** The text with escapes in it, for places that take a string alone: titles, labels, canvas. */
export function visible(text: string): string {
  return pieces(text)
    .map((piece) => piece.text)
    .join("");
}

function hasInvisible(text: string): boolean {
  for (const character of text) if (isInvisible(character)) return true;
  return false;
}
