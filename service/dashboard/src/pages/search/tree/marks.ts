/** What is drawn over the tree and changes often: rings of selection, cursor, search and hover, and the pulse. */

import { toScreen } from "./camera";
import { isInView } from "./cull";
import { detailAt } from "./detail";
import type { Scene } from "./draw";
import type { Place } from "./layout";

export interface Marks {
  selected: string | null;
  /** The node that the keyboard is at; shown while the canvas has the focus. */
  cursor: string | null;
  focused: boolean;
  hovered: string | null;
  matches: ReadonlySet<string>;
}

export const NO_MARKS: Marks = {
  selected: null,
  cursor: null,
  focused: false,
  hovered: null,
  matches: new Set(),
};

type Ink = CanvasRenderingContext2D;

const TURN = Math.PI * 2;
const PULSE_MS = 2400;

/** Draws the marks; says whether something in view pulses, so that another frame is wanted. `busy` are the places that do. */
export function drawMarks(
  ink: Ink,
  scene: Scene,
  marks: Marks,
  busy: readonly Place[],
  at: number,
  still: boolean,
): boolean {
  const { layout, camera, size, palette } = scene;
  ink.clearRect(0, 0, size.width, size.height);
  let pulses = false;
  for (const place of busy) {
    if (!isInView(camera, size, place)) continue;
    pulses = true;
    pulse(ink, scene, place, still ? 0.35 : (at % PULSE_MS) / PULSE_MS);
  }
  for (const id of marks.matches) {
    const place = layout.byId.get(id);
    if (place && isInView(camera, size, place)) ring(ink, scene, place, 5, 2.5, palette.color("--warn"));
  }
  const one = (id: string | null) => (id === null ? undefined : layout.byId.get(id));
  const hovered = one(marks.hovered);
  if (hovered) ring(ink, scene, hovered, 4, 1.5, palette.color("--text-2"));
  const selected = one(marks.selected);
  if (selected) {
    ring(ink, scene, selected, 5, 5, palette.color("--surface"));
    ring(ink, scene, selected, 5, 3, palette.color("--focus"));
  }
  const cursor = marks.focused ? one(marks.cursor) : undefined;
  if (cursor) corners(ink, scene, cursor);
  return pulses && !still;
}

function reach(scene: Scene, place: Place): number {
  return Math.max(3, scene.radius(place.row, detailAt(scene.camera)));
}

function ring(ink: Ink, scene: Scene, place: Place, gap: number, width: number, color: string): void {
  const { x, y } = toScreen(scene.camera, place);
  ink.strokeStyle = color;
  ink.lineWidth = width;
  ink.beginPath();
  ink.arc(x, y, reach(scene, place) + gap, 0, TURN);
  ink.stroke();
}

/** A ring that widens and fades. */
function pulse(ink: Ink, scene: Scene, place: Place, share: number): void {
  ink.globalAlpha = 0.8 * (1 - share);
  ring(
    ink,
    scene,
    place,
    1 + share * (3 + 6 * detailAt(scene.camera).scale),
    2,
    scene.palette.color("--accent"),
  );
  ink.globalAlpha = 1;
}

/** The corners of a square: where the keyboard is, whatever rings the node has. */
function corners(ink: Ink, scene: Scene, place: Place): void {
  const { x, y } = toScreen(scene.camera, place);
  const side = reach(scene, place) + 9;
  const arm = side * 0.5;
  for (const [width, token] of [
    [5, "--surface"],
    [2.5, "--focus"],
  ] as const) {
    ink.strokeStyle = scene.palette.color(token);
    ink.lineWidth = width;
    ink.beginPath();
    for (const [h, v] of [
      [-1, -1],
      [1, -1],
      [1, 1],
      [-1, 1],
    ] as const) {
      ink.moveTo(x + h * side, y + v * (side - arm));
      ink.lineTo(x + h * side, y + v * side);
      ink.lineTo(x + h * (side - arm), y + v * side);
    }
    ink.stroke();
  }
}
