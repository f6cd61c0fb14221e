/** The picture of the tree: edges, nodes, titles. What is marked for the moment is drawn over it by `marks.ts`. */

import { format } from "../../../design";
import { type Camera, type Size, toScreen } from "./camera";
import { edgesInView, placesInView } from "./cull";
import { type Detail, detailAt } from "./detail";
import { drawBan, drawGlyph, drawPin, drawStar } from "./glyphs";
import { LOOKS } from "./kinds";
import { firstFrom, type Layout, type Place } from "./layout";
import type { Palette } from "./palette";
import type { SearchTree, TreeRow } from "./rows";
import type { Cut, Texts } from "./text";
import { standing, titleOf } from "./words";

export interface Scene {
  tree: SearchTree;
  layout: Layout;
  camera: Camera;
  size: Size;
  palette: Palette;
  texts: Texts;
  /** Ids from the root to the best node. */
  lit: ReadonlySet<string>;
  radius: (row: TreeRow, detail: Pick<Detail, "scale">) => number;
}

type Ink = CanvasRenderingContext2D;

/** The share of a column that is the stem of a parent, on which its title stands; the rest fans out to its children,
 * wider where techniques are written on the edges. */
function stemOf(detail: Pick<Detail, "techniques">): number {
  return detail.techniques ? 0.56 : 0.7;
}

export function drawTree(ink: Ink, scene: Scene): void {
  const detail = detailAt(scene.camera);
  ink.clearRect(0, 0, scene.size.width, scene.size.height);
  drawEdges(ink, scene, detail);
  const places = placesInView(scene.layout, scene.camera, scene.size, detail.grain);
  drawNodes(ink, scene, detail, places);
  if (detail.titles) for (const place of places) drawTitle(ink, scene, detail, place);
  if (detail.techniques) for (const place of places) drawTechnique(ink, scene, detail, place);
}

function drawEdges(ink: Ink, scene: Scene, detail: Detail): void {
  const { tree, lit, palette, layout, camera, size } = scene;
  const strong: Place[] = [];
  const pale: Place[] = [];
  for (const child of edgesInView(layout, camera, size, detail.grain)) {
    if (lit.has(child.id)) continue;
    if (LOOKS[child.kind].quiet && child.children.length === 0) pale.push(child);
    else strong.push(child);
  }
  ink.lineWidth = 1;
  strokeEdges(ink, scene, detail, pale, palette.color("--border"));
  strokeEdges(ink, scene, detail, strong, palette.color("--border-strong"));
  const path = tree.bestPath.flatMap((id) => layout.byId.get(id) ?? []).filter((place) => place.parent);
  ink.lineWidth = 7;
  strokeEdges(ink, scene, detail, path, palette.color("--accent-soft"));
  ink.lineWidth = 2.5;
  strokeEdges(ink, scene, detail, path, palette.color("--accent"));
}

/** Lines of one pixel are stroked many at once; a path of thousands of segments is slow to fill otherwise. */
const BATCH = 200;

function strokeEdges(
  ink: Ink,
  scene: Scene,
  detail: Detail,
  children: readonly Place[],
  color: string,
): void {
  ink.strokeStyle = color;
  for (let from = 0; from < children.length; from += BATCH) {
    ink.beginPath();
    for (const child of children.slice(from, from + BATCH)) edge(ink, scene.camera, child, detail);
    ink.stroke();
  }
}

function edge(ink: Ink, camera: Camera, child: Place, detail: Detail): void {
  const parent = child.parent;
  if (!parent) return;
  const a = toScreen(camera, parent);
  const b = toScreen(camera, child);
  ink.moveTo(a.x, a.y);
  if (!detail.curves) {
    ink.lineTo(b.x, b.y);
    return;
  }
  const start = detail.titles ? a.x + camera.column * stemOf(detail) : a.x;
  if (start > a.x) ink.lineTo(start, a.y);
  const middle = (start + b.x) / 2;
  ink.bezierCurveTo(middle, a.y, middle, b.y, b.x, b.y);
}

function drawNodes(ink: Ink, scene: Scene, detail: Detail, places: readonly Place[]): void {
  const { tree, palette, camera, lit } = scene;
  ink.lineCap = "round";
  ink.lineJoin = "round";
  const later: Place[] = [];
  for (const place of places) {
    if (lit.has(place.id) || place.row.mark) later.push(place);
    else node(ink, scene, detail, place);
  }
  for (const place of later) {
    const { row } = place;
    const { x, y } = toScreen(camera, place);
    const r = scene.radius(row, detail);
    if (lit.has(row.id)) {
      ink.fillStyle = palette.color("--surface");
      ink.strokeStyle = palette.color("--accent");
      ink.lineWidth = 2;
      ink.beginPath();
      ink.arc(x, y, Math.max(r, 3) + 2.5, 0, Math.PI * 2);
      ink.fill();
      ink.stroke();
    }
    node(ink, scene, detail, place);
    if (row.mark === "pinned") drawPin(ink, x, y, r, palette);
    if (row.mark === "banned") drawBan(ink, x, y, r, palette);
    // Where nodes have titles the star is in the best one's: above the node it would hide the one there.
    if (row.id === tree.bestId && !detail.titles) drawStar(ink, x, y, r, palette);
  }
}

function node(ink: Ink, scene: Scene, detail: Detail, place: Place): void {
  const { x, y } = toScreen(scene.camera, place);
  const { kind } = place;
  const r = scene.radius(place.row, detail);
  if (LOOKS[kind].quiet) ink.globalAlpha = 0.75;
  drawGlyph(ink, kind, x, y, r, scene.palette, detail.glyphs, place.color, place.slower);
  ink.globalAlpha = 1;
  if (place.hidden > 0 && detail.titles) badge(ink, scene, x + r + 5, y, place.hidden);
}

function badge(ink: Ink, scene: Scene, x: number, y: number, hidden: number): void {
  const { palette } = scene;
  const width = badgeWidth(hidden);
  ink.fillStyle = palette.color("--raised");
  ink.strokeStyle = palette.color("--border-strong");
  ink.lineWidth = 1;
  ink.beginPath();
  ink.roundRect(x, y - 8, width, 16, 8);
  ink.fill();
  ink.stroke();
  ink.fillStyle = palette.color("--text");
  ink.font = palette.small;
  ink.textAlign = "center";
  ink.textBaseline = "middle";
  ink.fillText(`+${hidden}`, x + width / 2, y + 0.5);
}

function badgeWidth(hidden: number): number {
  return 18 + String(hidden).length * 6;
}

const LEAST_TITLE = 48;

/** Where a node's title begins, and the room that it has. */
function titleBox(scene: Scene, detail: Detail, place: Place): { x: number; room: number } {
  const { camera, layout, size } = scene;
  const { x } = toScreen(camera, place);
  const offset =
    scene.radius(place.row, detail) +
    (scene.lit.has(place.id) ? 10 : 8) +
    (place.hidden > 0 ? badgeWidth(place.hidden) + 4 : 0);
  const last = place.depth === layout.columns.length - 1;
  let room = camera.column * stemOf(detail) - offset;
  if (last) room = Math.max(LEAST_TITLE, size.width - x - offset - 8);
  else if (place.children.length === 0 && isFree(layout, place)) room = camera.column - offset - 16;
  return { x: x + offset, room: Math.min(room, 320) };
}

/** Whether nothing of the next column stands where a long title would reach. */
function isFree(layout: Layout, place: Place): boolean {
  const column = layout.columns[place.depth + 1] ?? [];
  const next = column[firstFrom(column, place.y - 0.9)];
  return next === undefined || next.y > place.y + 0.9;
}

function drawTitle(ink: Ink, scene: Scene, detail: Detail, place: Place): void {
  const { palette, texts, camera } = scene;
  const { row, kind } = place;
  const { y } = toScreen(camera, place);
  const { x, room } = titleBox(scene, detail, place);
  if (room < 28) return;
  const quiet = LOOKS[kind].quiet;
  const font = scene.lit.has(row.id) ? palette.bold : palette.title;
  const title = texts.cut(numbered(row, scene.tree), font, room);
  // One line stands in the middle and interrupts its stem, so that rows next to each other keep clear; of two, the stem
  // is between them.
  const base = detail.scores ? y - 5 : y + palette.line * 0.28;
  ink.textAlign = "left";
  ink.textBaseline = "alphabetic";
  words(ink, palette, title, x, base, font, palette.color(quiet ? "--text-2" : "--text"));
  if (!detail.scores) return;
  const note = row.score != null && !quiet ? format.ratio(row.score) : standing(row);
  const second = texts.cut(note, palette.small, room);
  words(
    ink,
    palette,
    second,
    x,
    y + palette.line * 0.85,
    palette.small,
    palette.color(row.verdict === "accepted" && row.seq > 0 ? place.color : "--text-2"),
  );
}

/** How far a node's title reaches to the right of its middle, for the pointer. */
export function titleWidth(scene: Scene, place: Place): number {
  const detail = detailAt(scene.camera);
  const { row } = place;
  if (!detail.titles) return 0;
  const { x, room } = titleBox(scene, detail, place);
  const font = scene.lit.has(row.id) ? scene.palette.bold : scene.palette.title;
  return x - toScreen(scene.camera, place).x + scene.texts.cut(numbered(row, scene.tree), font, room).width;
}

/** The number that the command line takes (`SEARCH#12`) comes first: it is never cut. The best has a star before it. */
function numbered(row: TreeRow, tree: SearchTree): string {
  const star = row.id === tree.bestId ? "\u2605 " : "";
  return row.seq === 0 ? star + titleOf(row) : `${star}#${row.seq} ${titleOf(row)}`;
}

/** How far from a node's middle the sign of what it hides reaches; null where it hides nothing. */
export function badgeReach(scene: Scene, place: Place): number | null {
  const detail = detailAt(scene.camera);
  if (place.hidden === 0 || !detail.titles) return null;
  return scene.radius(place.row, detail) + 5 + badgeWidth(place.hidden);
}

function drawTechnique(ink: Ink, scene: Scene, detail: Detail, place: Place): void {
  const { row } = place;
  if (!row.technique || !place.parent) return;
  const { camera, palette, texts } = scene;
  const room = camera.column * (1 - stemOf(detail)) - 24;
  const name = texts.cut(format.words(row.technique), palette.small, room);
  if (name.text === "" || name.text.endsWith("…")) return;
  const { x, y } = toScreen(camera, place);
  const end = x - scene.radius(row, detail) - (scene.lit.has(row.id) ? 9 : 6);
  ink.textAlign = "right";
  ink.textBaseline = "alphabetic";
  words(ink, palette, name, end, y - 4, palette.small, palette.color("--text-2"));
}

/** Text on a pale ground of its own, so that lines under it do not disturb. An outline of letters would be slow to draw. */
function words(
  ink: Ink,
  palette: Palette,
  text: Cut,
  x: number,
  y: number,
  font: string,
  color: string,
): void {
  if (text.text === "") return;
  const left = ink.textAlign === "right" ? x - text.width : x;
  ink.globalAlpha = 0.9;
  ink.fillStyle = palette.color("--surface");
  ink.fillRect(left - 2, y - palette.line * 0.72, text.width + 4, palette.line * 0.9);
  ink.globalAlpha = 1;
  ink.font = font;
  ink.fillStyle = color;
  ink.fillText(text.text, x, y);
}
