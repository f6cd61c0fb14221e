import type { SearchDocument } from "../../api/queries";
import { format } from "../../design";

export const LIMITS = [
  "candidates",
  "model_calls",
  "tokens",
  "cost_usd",
  "wall_clock_s",
  "gpu_seconds",
  "try_seconds",
  "sweep_seconds",
] as const;
export type LimitName = (typeof LIMITS)[number];

export const LIMIT_LABELS: Readonly<Record<LimitName, string>> = {
  candidates: "Candidates",
  model_calls: "Model calls",
  tokens: "Tokens",
  cost_usd: "Cost",
  wall_clock_s: "Running time",
  gpu_seconds: "Device time",
  try_seconds: "Device time, tries",
  sweep_seconds: "Device time, sweeps",
};

/** Device seconds that tries may hold where a budget does not say: `TRY_SECONDS` of workers/search/budget.py. */
export const TRY_SECONDS = 300;

const WHOLE: ReadonlySet<string> = new Set<LimitName>(["candidates", "model_calls", "tokens"]);
/** `LARGEST_COUNT` and `LARGEST_AMOUNT` of workers/search/budget.py. */
const LARGEST_COUNT = 1e12;
const LARGEST_AMOUNT = 1e9;

/** Why the service would refuse a limit as it is typed, in the unit of its field, which is `scale` of the service's. */
export function limitProblem(name: string, typed: string, scale = 1): string | null {
  const value = Number(typed);
  const whole = WHOLE.has(name);
  const most = Math.floor((whole ? LARGEST_COUNT : LARGEST_AMOUNT) / scale);
  if (value > 0 && value <= most && (!whole || Number.isInteger(value))) return null;
  return `found ${typed}, expected ${whole ? "a whole number from 1 to" : "a number above 0 and at most"} ${most}`;
}

/** An amount of what a limit counts, with its unit. */
export function amount(name: LimitName, value: number | null | undefined): string {
  if (name === "cost_usd") return format.money(value);
  return name === "wall_clock_s" || name.endsWith("_seconds") ? format.duration(value) : format.count(value);
}

export interface Allowance {
  name: LimitName;
  label: string;
  used: number | null;
  limit: number | null;
  /** "12 of 40", or "12" where there is no limit. */
  text: string;
}

/** What a search has spent of each limit. */
export function allowances(search: Pick<SearchDocument, "spend" | "budget">): Allowance[] {
  return LIMITS.map((name) => {
    const used = search.spend[name] ?? null;
    const limit = limitOf(search.budget, name) ?? (name === "try_seconds" ? TRY_SECONDS : null);
    const spent = amount(name, used);
    return {
      name,
      label: LIMIT_LABELS[name],
      used,
      limit,
      text: limit === null ? spent : `${spent} of ${amount(name, limit)}`,
    };
  });
}

export function limitOf(budget: SearchDocument["budget"], name: LimitName): number | null {
  const limit = budget[name];
  return typeof limit === "number" ? limit : null;
}
