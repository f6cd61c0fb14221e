/** The whole tree in small, with the part that is in view framed. */

import type { Camera, Point, Size } from "./camera";
import type { Scene } from "./draw";
import type { Layout } from "./layout";

const PAD = 8;

interface Scale {
  column: number;
  row: number;
}

function scaleOf(layout: Layout, map: Size): Scale {
  return {
    column: (map.width - 2 * PAD) / Math.max(1, layout.columns.length - 1),
    row: (map.height - 2 * PAD) / Math.max(1, layout.height),
  };
}

/** The view's frame on the map. */
function frameOf(layout: Layout, camera: Camera, view: Size, map: Size) {
  const scale = scaleOf(layout, map);
  const across = (x: number) => PAD + ((x - camera.x) / camera.column) * scale.column;
  const down = (y: number) => PAD + ((y - camera.y) / camera.row) * scale.row;
  const clamp = (value: number, most: number) => Math.min(most - 1, Math.max(1, value));
  const left = clamp(across(0), map.width);
  const top = clamp(down(0), map.height);
  return {
    x: left,
    y: top,
    width: Math.max(4, clamp(across(view.width), map.width) - left),
    height: Math.max(4, clamp(down(view.height), map.height) - top),
  };
}

/** The camera with the middle of its view at a point of the map. */
export function cameraFromMap(layout: Layout, camera: Camera, view: Size, map: Size, at: Point): Camera {
  const scale = scaleOf(layout, map);
  const depth = (at.x - PAD) / scale.column;
  const y = (at.y - PAD) / scale.row;
  return { ...camera, x: view.width / 2 - depth * camera.column, y: view.height / 2 - y * camera.row };
}

/** Whether the tree has so few nodes that a map of it would only hide some of them. */
export function isSmall(layout: Layout): boolean {
  return layout.columns.reduce((sum, column) => sum + column.length, 0) <= FEW;
}

const FEW = 24;

/** Whether all of the tree is in view, so that a map would say nothing. */
export function isWhole(layout: Layout, camera: Camera, view: Size): boolean {
  const right = camera.x + (layout.columns.length - 1) * camera.column;
  const bottom = camera.y + layout.height * camera.row;
  return camera.x >= 0 && camera.y >= 0 && right <= view.width && bottom <= view.height;
}

/** The tree on the map: a dot for each node, the telling ones on top. Drawn when the tree changes. */
export function drawMap(ink: CanvasRenderingContext2D, scene: Scene, map: Size): void {
  const { layout, tree, palette } = scene;
  const scale = scaleOf(layout, map);
  ink.clearRect(0, 0, map.width, map.height);
  const dots: { x: number; y: number; color: string; rank: number }[] = [];
  for (const [depth, column] of layout.columns.entries()) {
    let last = Number.NEGATIVE_INFINITY;
    for (const place of column) {
      const y = PAD + place.y * scale.row;
      const { rank } = place;
      // Failed ones on one pixel are drawn once.
      if (rank < 5 && y - last < 0.7) continue;
      last = y;
      dots.push({ x: PAD + depth * scale.column, y, color: palette.color(place.color), rank });
    }
  }
  dots.sort((a, b) => a.rank - b.rank);
  for (const { x, y, color, rank } of dots) {
    ink.fillStyle = color;
    const r = rank >= 5 ? 1.5 : 1;
    ink.fillRect(x - r, y - r, 2 * r, 2 * r);
  }
  ink.strokeStyle = palette.color("--accent");
  ink.lineWidth = 1.5;
  ink.beginPath();
  for (const [at, id] of tree.bestPath.entries()) {
    const place = layout.byId.get(id);
    if (!place) break;
    const [x, y] = [PAD + place.depth * scale.column, PAD + place.y * scale.row];
    if (at === 0) ink.moveTo(x, y);
    else ink.lineTo(x, y);
  }
  ink.stroke();
}

export function drawFrame(ink: CanvasRenderingContext2D, scene: Scene, map: Size): void {
  const { x, y, width, height } = frameOf(scene.layout, scene.camera, scene.size, map);
  ink.clearRect(0, 0, map.width, map.height);
  ink.strokeStyle = scene.palette.color("--text");
  ink.lineWidth = 1.5;
  ink.strokeRect(x, y, width, height);
}
