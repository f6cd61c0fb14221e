/**
 * From the tree's columns and rows to pixels and back. Rows are scaled by the zoom; columns keep at least the width at
 * which the whole tree fills the view, so that a tree of thousands of rows still spreads over it when seen whole. Pure.
 */

import type { Layout, Place } from "./layout";

export interface Size {
  width: number;
  height: number;
}

export interface Camera {
  /** Pixels to a row: the zoom. */
  row: number;
  /** Pixels to a column; follows from `row`. */
  column: number;
  /** Where the root's column and row 0 are drawn. */
  x: number;
  y: number;
}

export interface Point {
  x: number;
  y: number;
}

/** The most detail. */
export const MAX_ROW = 64;
/** What a row has when a node is gone to: titles can be read. */
export const READING_ROW = 36;
/** A column's width to a row's height where there is room for both. */
const ASPECT = 7;
const MAX_COLUMN = 300;
const FIT_ROW = 44;
const MARGIN = { left: 34, right: 150, top: 36, bottom: 36 };
const NARROW = 520;

function margins(size: Size): typeof MARGIN {
  // The rightmost titles need room beside their node; a narrow view has none to give.
  return size.width < NARROW ? { ...MARGIN, left: 24, right: 48 } : MARGIN;
}

/** Pixels to a column when the whole tree is seen. */
function fittingColumn(layout: Layout, size: Size): number {
  const { left, right } = margins(size);
  const steps = Math.max(1, layout.columns.length - 1);
  return Math.min(MAX_COLUMN, Math.max(16, (size.width - left - right) / steps));
}

function fittingRow(layout: Layout, size: Size): number {
  const { top, bottom } = margins(size);
  if (layout.height === 0) return FIT_ROW;
  return Math.min(FIT_ROW, Math.max(0.01, (size.height - top - bottom) / layout.height));
}

export function columnFor(row: number, layout: Layout, size: Size): number {
  return Math.max(fittingColumn(layout, size), Math.min(MAX_COLUMN, row * ASPECT));
}

/** The least zoom: the whole tree and a little air. */
export function minRow(layout: Layout, size: Size): number {
  return Math.min(fittingRow(layout, size), READING_ROW) * 0.7;
}

/** The whole tree in the middle of the view. */
export function wholeView(layout: Layout, size: Size): Camera {
  const row = fittingRow(layout, size);
  const column = fittingColumn(layout, size);
  const { left, right } = margins(size);
  const wide = (layout.columns.length - 1) * column;
  const spare = Math.max(0, size.width - left - right - wide);
  return { row, column, x: left + spare / 2, y: (size.height - layout.height * row) / 2 };
}

export function toScreen(camera: Camera, place: Pick<Place, "depth" | "y">): Point {
  return { x: camera.x + place.depth * camera.column, y: camera.y + place.y * camera.row };
}

/** The same point of the tree stays under `at`. */
export function zoomAt(camera: Camera, factor: number, at: Point, layout: Layout, size: Size): Camera {
  const row = Math.min(MAX_ROW, Math.max(minRow(layout, size), camera.row * factor));
  return rescaled(camera, row, at, layout, size);
}

function rescaled(camera: Camera, row: number, at: Point, layout: Layout, size: Size): Camera {
  const column = columnFor(row, layout, size);
  return {
    row,
    column,
    x: at.x - ((at.x - camera.x) * column) / camera.column,
    y: at.y - ((at.y - camera.y) * row) / camera.row,
  };
}

export function panBy(camera: Camera, dx: number, dy: number): Camera {
  return { ...camera, x: camera.x + dx, y: camera.y + dy };
}

/** Some of the tree always stays in view, so that nobody is lost beside it. */
export function kept(camera: Camera, layout: Layout, size: Size): Camera {
  const wide = Math.max(0, layout.columns.length - 1) * camera.column;
  const tall = layout.height * camera.row;
  const edge = Math.min(80, size.width / 4, size.height / 4);
  const clamp = (value: number, low: number, high: number) => Math.max(low, Math.min(high, value));
  return {
    ...camera,
    x: clamp(camera.x, edge - wide, size.width - edge),
    y: clamp(camera.y, edge - tall, size.height - edge),
  };
}

/** The camera after a change of layout or size: the zoom stays, and `anchor` stays where it was on the screen. */
export function anchored(
  camera: Camera,
  before: Pick<Place, "depth" | "y">,
  after: Pick<Place, "depth" | "y">,
  layout: Layout,
  size: Size,
): Camera {
  const at = toScreen(camera, before);
  const column = columnFor(camera.row, layout, size);
  return { row: camera.row, column, x: at.x - after.depth * column, y: at.y - after.y * camera.row };
}

/** The least movement that brings a node into view; `nearer` also zooms in until titles can be read. */
export function reveal(
  camera: Camera,
  place: Pick<Place, "depth" | "y">,
  layout: Layout,
  size: Size,
  nearer = false,
): Camera {
  const row = nearer ? Math.max(camera.row, READING_ROW) : camera.row;
  const closer = row === camera.row ? camera : rescaled(camera, row, toScreen(camera, place), layout, size);
  const at = toScreen(closer, place);
  const side = Math.min(60, size.width / 4);
  const room = Math.min(220, size.width / 2); // for the title at its right
  const above = Math.min(50, size.height / 4);
  return panBy(closer, inward(at.x, side, size.width - room), inward(at.y, above, size.height - above));
}

function inward(at: number, low: number, high: number): number {
  if (at < low) return low - at;
  return at > high ? high - at : 0;
}

/** A node in the middle of the view, at a zoom at which its title can be read. */
export function centred(place: Pick<Place, "depth" | "y">, layout: Layout, size: Size): Camera {
  const row = Math.max(READING_ROW, Math.min(FIT_ROW, fittingRow(layout, size)));
  const column = columnFor(row, layout, size);
  return {
    row,
    column,
    x: size.width * 0.4 - place.depth * column,
    y: size.height / 2 - place.y * row,
  };
}

/** Between two views, for a movement that the eye can follow: every node moves straight to its place. */
export function between(from: Camera, to: Camera, share: number): Camera {
  const mix = (a: number, b: number) => a + (b - a) * share;
  return {
    row: mix(from.row, to.row),
    column: mix(from.column, to.column),
    x: mix(from.x, to.x),
    y: mix(from.y, to.y),
  };
}
