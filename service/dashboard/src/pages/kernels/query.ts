import type { KernelQuery, KernelSummary } from "../../api/queries";
import { sortOf } from "../../app/listing";

export const SORTS = ["created", "score", "limit"] as const;
const FILTERS = ["op", "target", "language", "text", "reverification"] as const;

/** What takes every filter away. */
export const NO_FILTERS = Object.fromEntries(FILTERS.map((name) => [name, null]));

/** What the address asks of the service. */
export function kernelQuery(params: URLSearchParams): KernelQuery {
  const { key, descending } = sortOf(params, SORTS);
  const given = [...FILTERS, "after" as const].flatMap((name) => {
    const value = params.get(name);
    return value ? [[name, value]] : [];
  });
  return {
    ...Object.fromEntries(given),
    sort: key as (typeof SORTS)[number],
    order: descending ? "desc" : "asc",
  };
}

/** Whether anything is left out. */
export function isFiltered(params: URLSearchParams): boolean {
  return FILTERS.some((name) => params.get(name));
}

/** Why these two cannot be compared, or null. Speed-ups of different ops say nothing of each other. */
export function notCompared(
  left: Pick<KernelSummary, "op_name">,
  right: Pick<KernelSummary, "op_name">,
): string | null {
  if (left.op_name === right.op_name) return null;
  return `The first is of ${left.op_name}, the second of ${right.op_name}: a speed-up of one op says nothing of another's.`;
}

/** The two that are compared: a third takes the place of the older one. */
export function picked(chosen: readonly string[], id: string): string[] {
  return chosen.includes(id) ? chosen.filter((other) => other !== id) : [...chosen.slice(-1), id];
}
