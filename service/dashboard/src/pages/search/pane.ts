/** How wide the node stands beside the tree, kept from one visit to the next. */

const KEY = "warpsmith-node-width";
const FIRST = 520;
export const LEAST_PANE = 340;
const LEAST_REST = 280;

export function clampPane(width: number, room: number): number {
  const most = room > 0 ? Math.max(LEAST_PANE, room - LEAST_REST) : width;
  return Math.round(Math.min(most, Math.max(LEAST_PANE, width)));
}

export function readPaneWidth(): number {
  try {
    const kept = Number(localStorage.getItem(KEY));
    return kept >= LEAST_PANE ? kept : FIRST;
  } catch {
    return FIRST; // storage is refused in some private windows
  }
}

export function keepPaneWidth(width: number): void {
  try {
    localStorage.setItem(KEY, String(width));
  } catch {
    // It then lasts for this page alone.
  }
}
