/** From a search's progress to what its plot draws. Pure. */

import type { ProgressDocument } from "../../../api/progress";
import { toneOf } from "../../../design";
import { type DotMark, extent, type PlotTone } from "../../../design/plot";
import { type Axis, onAxis } from "./axes";

export type JudgedPoint = ProgressDocument["judged"][number];
export type BestPoint = ProgressDocument["best"][number];

interface BestSeries {
  steps: { x: number; y: number; low: number | null; high: number | null }[];
  /** Where the best changed, filled where it was verified; `label` where there is room for one. */
  champions: (DotMark & { x: number; y: number; point: BestPoint })[];
  dots: (DotMark & { x: number; y: number; point: JudgedPoint })[];
  xDomain: readonly [number, number];
  yDomain: readonly [number, number];
  /** Times apart by more than a factor of twenty are read on a logarithmic axis. */
  yKind: "linear" | "log";
}

const LABEL_ROOM = 0.07;
const WIDE = 20;

/** The axes that can be drawn: an unknown cost is not free. */
export function axesOf(progress: Pick<ProgressDocument, "judged" | "best">): Axis[] {
  const known = [...progress.judged, ...progress.best].some(({ cost_usd }) => cost_usd !== null);
  return known ? ["candidates", "time", "cost"] : ["candidates", "time"];
}

export function bestSeries(
  { best, judged }: Pick<ProgressDocument, "best" | "judged">,
  axis: Axis,
): BestSeries {
  const risen = placed(best, axis);
  const tried = placed(judged, axis);
  const [, last] = extent([...risen, ...tried].map(({ x }) => x)) ?? [0, 1];
  const xDomain = [0, last || 1] as const;

  const found = [...risen.map(({ point }) => point.score), ...tried.map(({ point }) => point.score)];
  const scores = found.filter((score): score is number => score !== null && score > 0);
  const bounds = risen.flatMap(({ point }) => point.ci95 ?? []);
  const [low, high] = extent([...scores, ...bounds, 1]) ?? [0, 1];
  const yKind = Math.min(...scores) > 0 && high / Math.min(low, ...scores) > WIDE ? "log" : "linear";
  const floor = yKind === "log" ? low / 1.3 : 0;
  const yDomain = [floor, yKind === "log" ? high * 1.3 : high * 1.1] as const;

  const steps = risen.map(({ x, point }) => ({ x, y: point.score, ...ends(point.ci95) }));
  const champion = steps.at(-1);
  if (champion && champion.x < last) steps.push({ ...champion, x: last });

  return {
    steps,
    champions: labelled(risen, last),
    dots: tried.map(({ x, point }) => ({
      key: `${point.node_id}:${point.level}:${point.at}`,
      x,
      y: point.score ?? floor,
      tone: toneOfVerdict(point.verdict),
      shape: point.score === null ? "cross" : point.level === "verify" ? "circle" : "ring",
      radius: 3.5,
      point,
    })),
    xDomain,
    yDomain,
    yKind,
  };
}

function placed<Point extends BestPoint | JudgedPoint>(points: readonly Point[], axis: Axis) {
  return points.flatMap((point) => {
    const x = onAxis(point, axis);
    return x === null ? [] : [{ x, point }];
  });
}

function ends(ci95: readonly number[] | null) {
  const [low, high] = ci95 ?? [];
  return { low: low ?? null, high: high ?? null };
}

/** The latest champion is always named; of the others, those with room to the next. */
function labelled(risen: readonly { x: number; point: BestPoint }[], last: number): BestSeries["champions"] {
  let next = Number.POSITIVE_INFINITY;
  return [...risen]
    .reverse()
    .map(({ x, point }) => {
      const room = next - x >= LABEL_ROOM * (last || 1);
      if (room) next = x;
      return {
        key: `best:${point.node_id}:${point.at}`,
        x,
        y: point.score,
        tone: "accent" as const,
        shape: point.level === "verify" ? ("diamond" as const) : ("ring" as const),
        radius: 4,
        point,
        ...(room && { label: `#${point.seq}` }),
      };
    })
    .reverse();
}

export function toneOfVerdict(verdict: string | null): PlotTone {
  return verdict === null ? "wait" : toneOf(verdict);
}
