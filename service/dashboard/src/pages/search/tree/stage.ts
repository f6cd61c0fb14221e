/**
 * The drawing's state between frames: it takes what changed, lays out at most once per frame, and draws what is stale.
 * React tells it of changes and is told of what a person does; it renders nothing per frame.
 */

import {
  anchored,
  between,
  type Camera,
  centred,
  columnFor,
  kept,
  type Point,
  panBy,
  reveal,
  type Size,
  toScreen,
  wholeView,
  zoomAt,
} from "./camera";
import { type Hit, hitAt } from "./cull";
import { detailAt, sizing } from "./detail";
import { badgeReach, drawTree, type Scene, titleWidth } from "./draw";
import { isBusy } from "./kinds";
import { EMPTY_LAYOUT, type Layout, layout, type Place, refresh } from "./layout";
import { drawMarks, type Marks, NO_MARKS } from "./marks";
import { cameraFromMap, drawFrame, drawMap, isSmall, isWhole } from "./minimap";
import { readPalette } from "./palette";
import { EMPTY_TREE, type SearchTree } from "./rows";
import { Texts } from "./text";

interface Canvases {
  tree: HTMLCanvasElement;
  marks: HTMLCanvasElement;
  map: HTMLCanvasElement;
  frame: HTMLCanvasElement;
}

/** What is kept of a view, so that it can be taken up again. */
export interface SavedView {
  camera: Camera;
  size: Size;
}

const MOVE_MS = 220;
const PULSE_FRAME_MS = 40;
const MAP_MS = 250;
const NO_SIZE: Size = { width: 0, height: 0 };

export class Stage {
  private tree: SearchTree = EMPTY_TREE;
  private collapsed: ReadonlySet<string> = new Set();
  private layout: Layout = EMPTY_LAYOUT;
  private camera: Camera = { row: 1, column: 1, x: 0, y: 0 };
  private size: Size = NO_SIZE;
  private mapSize: Size = NO_SIZE;
  private marks: Marks = NO_MARKS;
  private scene: Scene;

  private stale = { layout: false, rows: false, tree: true, marks: true, map: true };
  private busy: readonly Place[] = [];
  private lastMap = Number.NEGATIVE_INFINITY;
  private frame = 0;
  private move: { from: Camera; to: Camera; start: number } | null = null;
  private lastMarks = 0;
  /** Whether the whole tree is kept in view as it grows: until a person moves the view. */
  private following = true;
  private saved: SavedView | null = null;
  private goal: { id: string; nearer: boolean } | null = null;

  constructor(
    private readonly canvases: Canvases,
    private readonly still: () => boolean,
    private readonly onView: (whole: boolean) => void,
  ) {
    const ink = inkOf(canvases.tree);
    this.scene = {
      tree: this.tree,
      layout: this.layout,
      camera: this.camera,
      size: this.size,
      palette: readPalette(canvases.tree),
      texts: new Texts((text, font) => {
        ink.font = font;
        return ink.measureText(text).width;
      }),
      lit: new Set(),
      radius: sizing(0),
    };
  }

  stop(): void {
    cancelAnimationFrame(this.frame);
    this.frame = 0;
  }

  // What changed ------------------------------------------------------------------------------------------------------

  setTree(tree: SearchTree, collapsed: ReadonlySet<string>): void {
    if (tree === this.tree && collapsed === this.collapsed) return;
    const reshaped =
      tree.children !== this.tree.children ||
      tree.rootId !== this.tree.rootId ||
      collapsed !== this.collapsed;
    if (reshaped) this.stale.layout = true;
    this.stale.rows = this.stale.tree = this.stale.marks = this.stale.map = true;
    this.tree = tree;
    this.collapsed = collapsed;
    this.want();
  }

  setMarks(marks: Marks): void {
    this.marks = marks;
    this.stale.marks = true;
    this.want();
  }

  setTheme(): void {
    this.scene = { ...this.scene, palette: readPalette(this.canvases.tree) };
    this.repaint();
  }

  setSize(size: Size, mapSize: Size, ratio: number): void {
    const before = this.size;
    this.size = size;
    this.mapSize = mapSize;
    for (const canvas of [this.canvases.tree, this.canvases.marks]) scaleCanvas(canvas, size, ratio);
    for (const canvas of [this.canvases.map, this.canvases.frame]) scaleCanvas(canvas, mapSize, ratio);
    if (before.width > 0 && size.width > 0) this.resized(before);
    this.stale.layout = true;
    this.repaint();
  }

  private resized(before: Size): void {
    if (this.following) return;
    // A movement ends where it was going. What was in the middle stays there.
    const camera = this.move?.to ?? this.camera;
    this.move = null;
    this.camera = panBy(camera, (this.size.width - before.width) / 2, (this.size.height - before.height) / 2);
    const { selected } = this.marks;
    const place = selected === null ? undefined : this.layout.byId.get(selected);
    if (place) this.camera = reveal(this.camera, place, this.layout, this.size);
  }

  private repaint(): void {
    this.stale.tree = this.stale.marks = this.stale.map = true;
    this.want();
  }

  // What is asked of the view -----------------------------------------------------------------------------------------

  pan(dx: number, dy: number): void {
    this.take(panBy(this.moved(), dx, dy));
  }

  zoom(factor: number, at: Point = { x: this.size.width / 2, y: this.size.height / 2 }): void {
    this.take(zoomAt(this.moved(), factor, at, this.layout, this.size));
  }

  /** The same as `zoom`, in a movement: for a button or a key. */
  zoomSmoothly(factor: number): void {
    const at = { x: this.size.width / 2, y: this.size.height / 2 };
    const from = this.move?.to ?? this.camera;
    this.leave();
    this.glide(kept(zoomAt(from, factor, at, this.layout, this.size), this.layout, this.size));
  }

  fit(): void {
    this.following = true;
    this.glide(wholeView(this.layout, this.size));
  }

  /** Brings a node into view, now or as soon as it has a place. */
  goTo(id: string, nearer = false): void {
    this.goal = { id, nearer };
    this.want();
  }

  panFromMap(at: Point): void {
    this.take(cameraFromMap(this.layout, this.camera, this.size, this.mapSize, at));
  }

  /** The view to begin with, in place of the whole tree. */
  restore(view: SavedView): void {
    this.saved = view;
    this.following = false;
    this.want();
  }

  /** The view, where a person chose it. */
  view(): SavedView | null {
    // One that was to be taken up and never was, because no tree came, is still the view.
    if (this.saved) return this.saved;
    return this.following ? null : { camera: this.move?.to ?? this.camera, size: this.size };
  }

  // What is asked of the picture --------------------------------------------------------------------------------------

  hit(at: Point): (Hit & { badge: boolean }) | null {
    const detail = detailAt(this.camera);
    const radius = (place: Place) => this.scene.radius(place.row, detail);
    const found = hitAt(this.layout, this.camera, at, radius, (place) => titleWidth(this.scene, place));
    if (!found) return null;
    const reach = badgeReach(this.scene, found.place);
    const along = at.x - toScreen(this.camera, found.place).x;
    return { ...found, badge: reach !== null && along > radius(found.place) + 3 && along <= reach };
  }

  /** Where a node is drawn, and how large. */
  spot(id: string): (Point & { r: number }) | null {
    const place = this.layout.byId.get(id);
    if (!place) return null;
    return { ...toScreen(this.camera, place), r: this.scene.radius(place.row, detailAt(this.camera)) };
  }

  shape(): Layout {
    if (this.stale.layout) this.rearrange();
    return this.layout;
  }

  // Frames ------------------------------------------------------------------------------------------------------------

  private want(): void {
    if (this.frame === 0) this.frame = requestAnimationFrame((at) => this.draw(at));
  }

  private draw(at: number): void {
    this.frame = 0;
    if (this.size.width === 0 || this.size.height === 0) return;
    if (this.stale.layout) this.rearrange();
    if (this.goal) this.approach();
    if (this.move) this.advance(at);
    this.scene = {
      ...this.scene,
      tree: this.tree,
      layout: this.layout,
      camera: this.camera,
      size: this.size,
      ...(this.stale.rows && this.figures()),
    };
    const redrawn = this.stale.tree;
    if (this.stale.tree) drawTree(inkOf(this.canvases.tree), this.scene);
    // The map is small: it may follow a fast search at its own pace.
    const mapped = this.stale.map && at - this.lastMap >= MAP_MS;
    if (mapped) {
      this.lastMap = at;
      if (this.mapSize.width > 0) drawMap(inkOf(this.canvases.map), this.scene, this.mapSize);
    }
    if (redrawn) {
      if (this.mapSize.width > 0) drawFrame(inkOf(this.canvases.frame), this.scene, this.mapSize);
      this.onView(isSmall(this.layout) || isWhole(this.layout, this.camera, this.size));
    }
    const calm = this.still();
    let pulses = !this.stale.marks && !calm;
    if (this.stale.marks || redrawn || at - this.lastMarks >= PULSE_FRAME_MS) {
      pulses = drawMarks(inkOf(this.canvases.marks), this.scene, this.marks, this.busy, at, calm);
      this.lastMarks = at;
    }
    this.stale = { layout: false, rows: false, tree: false, marks: false, map: this.stale.map && !mapped };
    if (this.move) this.repaintView();
    if (pulses || this.stale.map) this.want();
  }

  /** What follows from the rows. */
  private figures(): Pick<Scene, "lit" | "radius"> {
    refresh(this.layout, this.tree.rows);
    this.busy = [...this.layout.byId.values()].filter((place) => isBusy(place.row));
    let top = 0;
    for (const row of this.tree.rows.values())
      if (row.verdict === "accepted") top = Math.max(top, row.score ?? 0);
    return { lit: new Set(this.tree.bestPath), radius: sizing(top) };
  }

  private rearrange(): void {
    const before = this.layout;
    this.layout = layout(this.tree, this.collapsed);
    this.stale.layout = false;
    this.stale.rows = this.stale.tree = this.stale.marks = this.stale.map = true;
    if (this.size.width === 0 || !this.layout.root) return;
    if (this.saved) {
      const { camera, size } = this.saved;
      this.saved = null;
      const column = columnFor(camera.row, this.layout, this.size);
      const moved = { ...camera, column, x: (camera.x / camera.column) * column };
      this.camera = kept(panBy(moved, 0, (this.size.height - size.height) / 2), this.layout, this.size);
      return;
    }
    if (this.following) {
      const goal = wholeView(this.layout, this.size);
      if (before.root) this.glide(goal);
      else this.camera = goal;
      return;
    }
    this.hold(before);
  }

  /** What a person looks at stays where it is when nodes come and go around it. */
  private hold(before: Layout): void {
    const anchor = this.anchor(before);
    const after = anchor && this.layout.byId.get(anchor.id);
    if (!anchor || !after) return;
    this.camera = anchored(this.camera, anchor, after, this.layout, this.size);
    if (this.move) {
      const to = anchored(this.move.to, anchor, after, this.layout, this.size);
      this.move = { ...this.move, from: this.camera, to };
    }
  }

  private anchor(before: Layout): Place | null {
    for (const id of [this.marks.cursor, this.marks.selected]) {
      const place = id === null ? undefined : before.byId.get(id);
      if (!place || !this.layout.byId.has(place.id)) continue;
      const { x, y } = toScreen(this.camera, place);
      if (x >= 0 && y >= 0 && x <= this.size.width && y <= this.size.height) return place;
    }
    let best: Place | null = null;
    let least = Number.POSITIVE_INFINITY;
    for (const place of before.byId.values()) {
      const { x, y } = toScreen(this.camera, place);
      const away = Math.hypot(x - this.size.width / 2, y - this.size.height / 2);
      if (away >= least || !this.layout.byId.has(place.id)) continue;
      least = away;
      best = place;
    }
    return best;
  }

  private approach(): void {
    const place = this.goal && this.layout.byId.get(this.goal.id);
    if (!this.goal || !place) return;
    const { nearer } = this.goal;
    this.goal = null;
    const from = this.move?.to ?? this.camera;
    const far = nearer && from.row < detailFloor;
    const to = far
      ? centred(place, this.layout, this.size)
      : reveal(from, place, this.layout, this.size, nearer);
    if (to.x === from.x && to.y === from.y && to.row === from.row) return;
    this.leave();
    this.glide(to);
  }

  private glide(to: Camera): void {
    if (this.still()) this.camera = to;
    else this.move = { from: this.camera, to, start: Number.NaN };
    this.repaintView();
  }

  private advance(at: number): void {
    if (!this.move) return;
    if (Number.isNaN(this.move.start)) this.move.start = at;
    const share = Math.min(1, (at - this.move.start) / MOVE_MS);
    this.camera = between(this.move.from, this.move.to, 1 - (1 - share) ** 3);
    if (share === 1) this.move = null;
    this.stale.tree = this.stale.marks = true;
  }

  private moved(): Camera {
    this.move = null;
    return this.camera;
  }

  /** A person's own view: it is no longer changed for them. */
  private take(camera: Camera): void {
    this.leave();
    this.camera = kept(camera, this.layout, this.size);
    this.repaintView();
  }

  private leave(): void {
    this.following = false;
  }

  private repaintView(): void {
    this.stale.tree = this.stale.marks = true;
    this.want();
  }
}

/** Below this zoom titles cannot be read, so that going to a node goes near. */
const detailFloor = 17;

function inkOf(canvas: HTMLCanvasElement): CanvasRenderingContext2D {
  const ink = canvas.getContext("2d");
  if (!ink) throw new Error("this browser gives no 2d context for a canvas");
  return ink;
}

function scaleCanvas(canvas: HTMLCanvasElement, size: Size, ratio: number): void {
  canvas.width = Math.max(1, Math.round(size.width * ratio));
  canvas.height = Math.max(1, Math.round(size.height * ratio));
  inkOf(canvas).setTransform(ratio, 0, 0, ratio, 0, 0);
}
