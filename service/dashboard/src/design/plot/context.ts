import { createContext, use } from "react";
import type { Tone } from "../tones";
import type { Scale } from "./scales";

/** Where the marks of a plot stand: its scales, and the size of the area within the axes in pixels. */
export interface PlotArea {
  x: Scale;
  y: Scale;
  width: number;
  height: number;
  /** Names a clip path of the area, for marks that may reach beyond it. */
  clip: string;
}

/** Pixels that a letter takes at most, at the size of labels (--t1) in a wide system font. */
export const LETTER = 7.6;

export const PlotContext = createContext<PlotArea | null>(null);

export function usePlot(): PlotArea {
  const area = use(PlotContext);
  if (!area) throw new Error("A mark must be within a Plot");
  return area;
}

/** Five steps from the least (blue) to the most (amber), told apart without red and green. */
export const STEPS = ["step1", "step2", "step3", "step4", "step5"] as const;

/** A mark's colour: a tone of the design system, a step of a scale, or the colours of text and lines. */
export type PlotTone = Tone | (typeof STEPS)[number] | "text" | "muted" | "border";

const TOKENS: Readonly<Record<PlotTone, string>> = {
  ok: "var(--ok)",
  bad: "var(--bad)",
  warn: "var(--warn)",
  wait: "var(--wait)",
  dup: "var(--dup)",
  accent: "var(--accent)",
  step1: "var(--step-1)",
  step2: "var(--step-2)",
  step3: "var(--step-3)",
  step4: "var(--step-4)",
  step5: "var(--step-5)",
  text: "var(--text)",
  muted: "var(--text-2)",
  border: "var(--border-strong)",
};

export function paint(tone: PlotTone = "accent"): string {
  return TOKENS[tone];
}
