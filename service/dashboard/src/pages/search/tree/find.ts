/** Nodes by title, technique, `#seq` or verdict. Pure. */

import type { SearchTree, TreeRow } from "./rows";
import { standing, titleOf } from "./words";

/** Ids by rising `seq` of the nodes in which every word is found; `#17` is the node of that number alone. */
export function findNodes(tree: Pick<SearchTree, "rows">, text: string): string[] {
  const words = text.toLowerCase().split(/\s+/).filter(Boolean);
  if (words.length === 0) return [];
  return [...tree.rows.values()]
    .filter((row) => matches(row, words))
    .sort((a, b) => a.seq - b.seq)
    .map((row) => row.id);
}

function matches(row: TreeRow, words: readonly string[]): boolean {
  const inside =
    `${titleOf(row)} ${row.technique ?? ""} ${(row.technique ?? "").replaceAll("_", " ")} ${standing(row)} ${
      row.mark ?? ""
    }`.toLowerCase();
  return words.every((word) =>
    /^#\d+$/.test(word) ? row.seq === Number(word.slice(1)) : inside.includes(word),
  );
}

/** The match after or before the one at hand, around the end. */
export function neighbour(found: readonly string[], current: string | null, by: 1 | -1): string | null {
  if (found.length === 0) return null;
  const at = current === null ? -1 : found.indexOf(current);
  if (at < 0) return (by > 0 ? found[0] : found.at(-1)) ?? null;
  return found[(at + by + found.length) % found.length] ?? null;
}
