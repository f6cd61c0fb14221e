/** Where the arrow keys lead from a node. Pure. */

import type { Layout, Place } from "./layout";

export type Direction = "parent" | "child" | "previous" | "next";

/**
 * The node in a direction, or null. The child is the one that stands nearest, which in a tidy tree is the middle one;
 * past the last sibling the next node of the same depth follows.
 */
export function step(layout: Layout, from: string, direction: Direction): string | null {
  const place = layout.byId.get(from);
  if (!place) return layout.root?.id ?? null;
  if (direction === "parent") return place.parent?.id ?? null;
  if (direction === "child") return nearest(place.children, place.y)?.id ?? null;
  const column = layout.columns[place.depth] ?? [];
  return column[column.indexOf(place) + (direction === "next" ? 1 : -1)]?.id ?? null;
}

function nearest(places: readonly Place[], y: number): Place | undefined {
  let best: Place | undefined;
  for (const place of places) if (!best || Math.abs(place.y - y) < Math.abs(best.y - y)) best = place;
  return best;
}
