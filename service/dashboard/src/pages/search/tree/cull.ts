/** What of the tree is within the view, by its columns, which are sorted from top to bottom. Pure. */

import { type Camera, type Point, type Size, toScreen } from "./camera";
import { firstFrom, type Layout, type Place } from "./layout";

/** A node's title may reach in from the left of the view, and its glyph from any side. */
const REACH = 24;

function columnsInView(camera: Camera, size: Size, layout: Layout): [number, number] {
  const first = Math.ceil((-REACH - camera.x) / camera.column - 1);
  const last = Math.floor((size.width + REACH - camera.x) / camera.column);
  return [Math.max(0, first), Math.min(layout.columns.length - 1, last)];
}

function rowsInView(camera: Camera, size: Size): [number, number] {
  return [(-REACH - camera.y) / camera.row, (size.height + REACH - camera.y) / camera.row];
}

/**
 * The places within the view. Where many share `grain` pixels only the most telling one of them is given, so that the
 * work follows from the size of the view and not from that of the tree.
 */
export function placesInView(layout: Layout, camera: Camera, size: Size, grain: number): Place[] {
  const [first, last] = columnsInView(camera, size, layout);
  const [top, bottom] = rowsInView(camera, size);
  const found: Place[] = [];
  for (let depth = first; depth <= last; depth++) {
    const column = layout.columns[depth] ?? [];
    let bin = Number.NaN;
    let rank = -1;
    for (let at = firstFrom(column, top); at < column.length; at++) {
      const place = column[at] as Place;
      if (place.y > bottom) break;
      if (grain > 0) {
        const here = Math.floor((place.y * camera.row) / grain);
        if (here === bin) {
          if (place.rank > rank) {
            found[found.length - 1] = place;
            rank = place.rank;
          }
          continue;
        }
        bin = here;
        rank = place.rank;
      }
      found.push(place);
    }
  }
  return found;
}

/** The places whose edge to their parent crosses the view; of edges of one parent nearer than `grain`, one. */
export function edgesInView(layout: Layout, camera: Camera, size: Size, grain: number): Place[] {
  const [first, last] = columnsInView(camera, size, layout);
  const [top, bottom] = rowsInView(camera, size);
  const found: Place[] = [];
  for (let depth = Math.max(0, first - 1); depth <= last; depth++) {
    for (const parent of layout.columns[depth] ?? []) {
      if (Math.max(parent.y, parent.bottom) < top || Math.min(parent.y, parent.top) > bottom) continue;
      let drawn = Number.NEGATIVE_INFINITY;
      for (const child of parent.children) {
        if (Math.max(parent.y, child.y) < top || Math.min(parent.y, child.y) > bottom) continue;
        if ((child.y - drawn) * camera.row < grain) continue;
        drawn = child.y;
        found.push(child);
      }
    }
  }
  return found;
}

/** Whether a node is within the view, or nearly. */
export function isInView(camera: Camera, size: Size, place: Place): boolean {
  const { x, y } = toScreen(camera, place);
  return x >= -REACH && y >= -REACH && x <= size.width + REACH && y <= size.height + REACH;
}

const FINGER = 10;

export interface Hit {
  place: Place;
  /** Whether it was the node's glyph, or the title at its right. */
  on: "glyph" | "title";
}

/** The node at a point: a glyph within reach, the nearest one; else the node whose title is there. */
export function hitAt(
  layout: Layout,
  camera: Camera,
  at: Point,
  radius: (place: Place) => number,
  titleWidth: (place: Place) => number,
): Hit | null {
  const depth = (at.x - camera.x) / camera.column;
  let best: Place | null = null;
  let least = Number.POSITIVE_INFINITY;
  for (const column of [Math.floor(depth), Math.ceil(depth)]) {
    for (const place of near(layout.columns[column] ?? [], at, camera)) {
      const point = toScreen(camera, place);
      const away = Math.hypot(point.x - at.x, point.y - at.y);
      if (away > Math.max(FINGER, radius(place) + 3) || away >= least) continue;
      best = place;
      least = away;
    }
  }
  if (best) return { place: best, on: "glyph" };
  for (const place of near(layout.columns[Math.floor(depth)] ?? [], at, camera)) {
    const point = toScreen(camera, place);
    const along = at.x - point.x;
    if (along < 0 || along > titleWidth(place)) continue;
    if (Math.abs(point.y - at.y) <= Math.min(camera.row / 2, 16)) return { place, on: "title" };
  }
  return null;
}

function near(column: readonly Place[], at: Point, camera: Camera): readonly Place[] {
  const y = (at.y - camera.y) / camera.row;
  const reach = 20 / camera.row;
  return column.slice(firstFrom(column, y - reach), firstFrom(column, y + reach));
}
