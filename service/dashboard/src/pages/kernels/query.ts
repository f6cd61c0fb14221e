import type { KernelQuery } from "../../api/queries";
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

/** The two that are compared: a third takes the place of the older one. */
export function picked(chosen: readonly string[], id: string): string[] {
  return chosen.includes(id) ? chosen.filter((other) => other !== id) : [...chosen.slice(-1), id];
}
