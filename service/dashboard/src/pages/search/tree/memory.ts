/** The view of a tree, kept for this browser tab: a reload or a look at another tab of the page comes back to it. */

import type { SavedView } from "./stage";

interface Kept {
  view: SavedView | null;
  collapsed: string[];
}

const key = (searchId: string) => `warpsmith-tree-${searchId}`;

export function recall(searchId: string): Kept {
  try {
    const kept: unknown = JSON.parse(sessionStorage.getItem(key(searchId)) ?? "null");
    if (isKept(kept)) return kept;
  } catch {
    // Storage may be refused, and what is in it may be of another version.
  }
  return { view: null, collapsed: [] };
}

export function remember(searchId: string, kept: Kept): void {
  try {
    sessionStorage.setItem(key(searchId), JSON.stringify(kept));
  } catch {
    // Then the tree is shown whole the next time.
  }
}

function isKept(value: unknown): value is Kept {
  if (typeof value !== "object" || value === null) return false;
  const { view, collapsed } = value as Partial<Kept>;
  if (!Array.isArray(collapsed) || !collapsed.every((id) => typeof id === "string")) return false;
  if (view === null) return true;
  if (!view?.camera || !view.size) return false;
  const { row, column, x, y } = view.camera;
  const numbers = [row, column, x, y, view.size.width, view.size.height];
  return numbers.every(Number.isFinite) && row > 0 && column > 0;
}
