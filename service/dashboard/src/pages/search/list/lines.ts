/** The lines of a nested list: what is shown of a tree, from top to bottom, and where the arrow keys lead. Pure. */

import type { SearchTree, TreeRow } from "../tree/rows";

export interface Line {
  row: TreeRow;
  /** From 1. */
  level: number;
  /** null where nothing is below it. */
  expanded: boolean | null;
  /** Its place among its siblings, from 1, and how many they are. */
  position: number;
  siblings: number;
  parent: number | null;
}

export function linesOf(tree: SearchTree, closed: ReadonlySet<string>): Line[] {
  const lines: Line[] = [];
  const walk = (ids: readonly string[], level: number, parent: number | null) => {
    for (const [at, id] of ids.entries()) {
      const row = tree.rows.get(id);
      if (!row) continue;
      const inside = tree.children.get(id) ?? [];
      const expanded = inside.length === 0 ? null : !closed.has(id);
      const here = lines.length;
      lines.push({ row, level, expanded, position: at + 1, siblings: ids.length, parent });
      if (expanded) walk(inside, level + 1, here);
    }
  };
  if (tree.rootId !== null) walk([tree.rootId], 1, null);
  return lines;
}

type Motion = { to: number } | { close: string } | { open: string };

/** What a key does at a line, by the ARIA pattern of a tree; null where it does nothing. */
export function motionOf(lines: readonly Line[], at: number, key: string, page: number): Motion | null {
  const line = lines[at];
  if (!line) return null;
  const clamp = (to: number) => ({ to: Math.max(0, Math.min(lines.length - 1, to)) });
  switch (key) {
    case "ArrowDown":
      return clamp(at + 1);
    case "ArrowUp":
      return clamp(at - 1);
    case "PageDown":
      return clamp(at + page);
    case "PageUp":
      return clamp(at - page);
    case "Home":
      return clamp(0);
    case "End":
      return clamp(lines.length - 1);
    case "ArrowRight":
      if (line.expanded === null) return null;
      return line.expanded ? clamp(at + 1) : { open: line.row.id };
    case "ArrowLeft":
      if (line.expanded) return { close: line.row.id };
      return line.parent === null ? null : { to: line.parent };
    default:
      return null;
  }
}

/** The lines that are in a scrolled view, with some to spare on both sides. */
export function windowOf(count: number, scrolled: number, height: number, line: number): [number, number] {
  const spare = 12;
  const first = Math.max(0, Math.floor(scrolled / line) - spare);
  const last = Math.min(count, Math.ceil((scrolled + height) / line) + spare);
  return [first, Math.max(first, last)];
}
