/** The shape of each kind of node: told apart without colour. */

import { type Kind, LOOKS } from "./kinds";
import type { Palette } from "./palette";

type Ink = CanvasRenderingContext2D;

const TURN = Math.PI * 2;

/** A node at a point. Below `glyphs` it is a dot of its colour. */
export function drawGlyph(
  ink: Ink,
  kind: Kind,
  x: number,
  y: number,
  r: number,
  palette: Palette,
  glyphs: boolean,
  token: `--${string}` = LOOKS[kind].color,
  slower = false,
): void {
  const look = LOOKS[kind];
  const color = palette.color(token);
  if (r < 2.5) {
    ink.fillStyle = color;
    ink.fillRect(x - r, y - r, 2 * r, 2 * r);
    return;
  }
  const surface = palette.color("--surface");
  ink.lineWidth = Math.min(2, 1 + r / 8);
  ink.strokeStyle = color;
  ink.fillStyle = color;
  ink.beginPath();
  switch (look.shape) {
    case "circle":
      ink.arc(x, y, r, 0, TURN);
      ink.fill();
      if (glyphs && r >= 4) (slower ? bar : check)(ink, x, y, r, surface);
      break;
    case "open":
      ink.arc(x, y, r * 0.9, 0, TURN);
      ink.fillStyle = surface;
      ink.fill();
      ink.stroke();
      if (glyphs && r >= 4) (slower ? bar : check)(ink, x, y, r, color);
      break;
    case "square":
      ink.roundRect(x - r * 0.85, y - r * 0.85, r * 1.7, r * 1.7, r * 0.3);
      ink.fill();
      if (glyphs) equals(ink, x, y, r, surface);
      break;
    case "triangle":
      polygon(ink, x, y + r * 0.15, r * 1.15, 3);
      ink.fill();
      if (glyphs && r >= 4) sign(ink, "!", x, y + r * 0.2, r, surface, palette);
      break;
    case "diamond":
      polygon(ink, x, y, r * 1.15, 4);
      ink.fill();
      if (glyphs && r >= 4) sign(ink, "?", x, y, r, surface, palette);
      break;
    case "cross":
      ink.moveTo(x - r * 0.75, y - r * 0.75);
      ink.lineTo(x + r * 0.75, y + r * 0.75);
      ink.moveTo(x + r * 0.75, y - r * 0.75);
      ink.lineTo(x - r * 0.75, y + r * 0.75);
      ink.stroke();
      break;
    case "dash":
      ink.moveTo(x - r * 0.9, y);
      ink.lineTo(x + r * 0.9, y);
      ink.stroke();
      break;
    case "ring":
      ink.arc(x, y, r * 0.85, 0, TURN);
      ink.fillStyle = surface;
      ink.fill();
      ink.stroke();
      break;
    case "dots":
      ink.arc(x, y, r, 0, TURN);
      ink.fillStyle = surface;
      ink.fill();
      ink.stroke();
      if (glyphs) dots(ink, x, y, r, color);
      break;
  }
}

function check(ink: Ink, x: number, y: number, r: number, color: string): void {
  ink.beginPath();
  ink.moveTo(x - r * 0.45, y + r * 0.05);
  ink.lineTo(x - r * 0.1, y + r * 0.4);
  ink.lineTo(x + r * 0.5, y - r * 0.35);
  ink.strokeStyle = color;
  ink.lineWidth = Math.max(1.2, r * 0.22);
  ink.stroke();
}

/** A minus: accepted, and slower than the fastest baseline. */
function bar(ink: Ink, x: number, y: number, r: number, color: string): void {
  ink.beginPath();
  ink.moveTo(x - r * 0.45, y);
  ink.lineTo(x + r * 0.45, y);
  ink.strokeStyle = color;
  ink.lineWidth = Math.max(1.2, r * 0.24);
  ink.stroke();
}

/** Two bars: what the others are measured against. */
function equals(ink: Ink, x: number, y: number, r: number, color: string): void {
  ink.fillStyle = color;
  ink.fillRect(x - r * 0.4, y - r * 0.35, r * 0.8, r * 0.22);
  ink.fillRect(x - r * 0.4, y + r * 0.13, r * 0.8, r * 0.22);
}

function dots(ink: Ink, x: number, y: number, r: number, color: string): void {
  ink.fillStyle = color;
  ink.beginPath();
  for (const step of [-0.45, 0, 0.45]) {
    ink.moveTo(x + r * step, y);
    ink.arc(x + r * step, y, Math.max(0.8, r * 0.14), 0, TURN);
  }
  ink.fill();
}

function sign(
  ink: Ink,
  text: string,
  x: number,
  y: number,
  r: number,
  color: string,
  palette: Palette,
): void {
  ink.fillStyle = color;
  ink.font = palette.bold.replace(/[\d.]+px/, `${Math.round(r * 1.4)}px`);
  ink.textAlign = "center";
  ink.textBaseline = "middle";
  ink.fillText(text, x, y);
}

function polygon(ink: Ink, x: number, y: number, r: number, corners: number): void {
  for (let at = 0; at < corners; at++) {
    const angle = (at / corners) * TURN - Math.PI / 2;
    const [px, py] = [x + r * Math.cos(angle), y + r * Math.sin(angle)];
    if (at === 0) ink.moveTo(px, py);
    else ink.lineTo(px, py);
  }
  ink.closePath();
}

/** A flag: a person holds this node to be worth it. */
export function drawPin(ink: Ink, x: number, y: number, r: number, palette: Palette): void {
  const foot = { x: x + r * 0.2, y: y - r * 0.8 };
  const top = foot.y - 10;
  ink.strokeStyle = palette.color("--accent");
  ink.fillStyle = palette.color("--accent");
  ink.lineWidth = 1.5;
  ink.beginPath();
  ink.moveTo(foot.x, foot.y);
  ink.lineTo(foot.x, top);
  ink.stroke();
  ink.beginPath();
  ink.moveTo(foot.x, top);
  ink.lineTo(foot.x + 8, top + 3);
  ink.lineTo(foot.x, top + 6);
  ink.fill();
}

/** Struck out: nothing follows from this node again. */
export function drawBan(ink: Ink, x: number, y: number, r: number, palette: Palette): void {
  const reach = Math.max(r, 4) + 3;
  ink.strokeStyle = palette.color("--bad");
  ink.lineWidth = 1.75;
  ink.beginPath();
  ink.arc(x, y, reach, 0, TURN);
  const side = reach * Math.SQRT1_2;
  ink.moveTo(x - side, y + side);
  ink.lineTo(x + side, y - side);
  ink.stroke();
}

/** A star above the best node. */
export function drawStar(ink: Ink, x: number, y: number, r: number, palette: Palette): void {
  const [cx, cy] = [x, y - r - 11];
  ink.fillStyle = palette.color("--accent");
  ink.strokeStyle = palette.color("--surface");
  ink.lineWidth = 2.5;
  ink.beginPath();
  for (let at = 0; at < 10; at++) {
    const reach = at % 2 === 0 ? 6.5 : 2.8;
    const angle = (at / 10) * TURN - Math.PI / 2;
    const [px, py] = [cx + reach * Math.cos(angle), cy + reach * Math.sin(angle)];
    if (at === 0) ink.moveTo(px, py);
    else ink.lineTo(px, py);
  }
  ink.closePath();
  ink.stroke();
  ink.fill();
}
