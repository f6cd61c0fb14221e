/** How much is drawn at a zoom, and how large a node is. Pure. */

import { scaleSqrt } from "d3-scale";
import type { Camera } from "./camera";
import { kindOf, LOOKS } from "./kinds";
import type { TreeRow } from "./rows";

export interface Detail {
  /** Of a node's full size. */
  scale: number;
  /** Signs within nodes: a check, a cross, a question mark. */
  glyphs: boolean;
  /** Curved edges that leave their node along a stem; else straight lines. */
  curves: boolean;
  titles: boolean;
  /** A second line under the title: speed-up or standing. */
  scores: boolean;
  /** Names of techniques on the edges. */
  techniques: boolean;
  /** Nodes and edges less than this many pixels apart are drawn as one. */
  grain: number;
}

export function detailAt(camera: Pick<Camera, "row" | "column">): Detail {
  const { row, column } = camera;
  return {
    scale: Math.min(1, Math.max(0.18, row / 20)),
    glyphs: row >= 16,
    curves: row >= 4,
    titles: row >= 17 && column >= 110,
    scores: row >= 32 && column >= 110,
    techniques: row >= 24 && column >= 200,
    grain: row >= 2 ? 0 : 1.5,
  };
}

const SMALLEST = 4;
const LARGEST = 11;
const DOT = 1.1;
const PALE = 4.5;

/** A node's radius in pixels by its speed-up; the area tells the ratio. `top` is the largest speed-up of the tree. */
export function sizing(top: number): (row: TreeRow, detail: Pick<Detail, "scale">) => number {
  const area = scaleSqrt()
    .domain([0, Math.max(2, top)])
    .range([SMALLEST, LARGEST])
    .clamp(true);
  return (row, detail) => Math.max(DOT, full(row, area) * detail.scale);
}

function full(row: TreeRow, area: (score: number) => number): number {
  const kind = kindOf(row);
  if (kind === "reference") return 9;
  if (LOOKS[kind].quiet) return PALE;
  return row.score == null ? 6 : area(row.score);
}
