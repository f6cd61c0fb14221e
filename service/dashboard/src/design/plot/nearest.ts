import type { PlotArea } from "./context";
import type { Place } from "./scales";

/** What can be pointed at: a point, or a span of x in a row. */
export interface Target {
  key: string;
  x: Place | readonly [number, number];
  y: Place;
  /** The part of the row's height that is its own, from 0 to 1; the whole row unless told. */
  lane?: readonly [number, number];
}

interface Box {
  left: number;
  right: number;
  top: number;
  bottom: number;
}

export function boxOf(target: Target, { x, y }: Pick<PlotArea, "x" | "y">): Box {
  const span = typeof target.x === "object" ? target.x : [target.x, target.x];
  const [from, to] = [x.at(span[0] as Place), x.at(span[1] as Place)];
  const start = y.at(target.y) - y.band / 2;
  const [top, bottom] = target.lane ?? [0, 1];
  return {
    left: Math.min(from, to) - x.band / 2,
    right: Math.max(from, to) + x.band / 2,
    top: start + top * y.band,
    bottom: start + bottom * y.band,
  };
}

/** The target next to a pixel and no farther than `reach`; of two as near, the later one, which is drawn above. */
export function nearest<T extends Target>(
  targets: readonly T[],
  area: Pick<PlotArea, "x" | "y">,
  px: number,
  py: number,
  reach = 24,
): T | null {
  let best: T | null = null;
  let least = reach;
  for (const target of targets) {
    const box = boxOf(target, area);
    const distance = Math.hypot(
      Math.max(box.left - px, 0, px - box.right),
      Math.max(box.top - py, 0, py - box.bottom),
    );
    if (distance <= least) {
      least = distance;
      best = target;
    }
  }
  return best;
}

/** The targets in the order in which arrow keys visit them: from left to right, then from top to bottom. */
export function readingOrder<T extends Target>(targets: readonly T[], area: Pick<PlotArea, "x" | "y">): T[] {
  const boxes = new Map(targets.map((target) => [target, boxOf(target, area)]));
  const of = (target: T) => boxes.get(target) ?? { left: 0, top: 0 };
  return [...targets].sort((a, b) => of(a).left - of(b).left || of(a).top - of(b).top);
}
