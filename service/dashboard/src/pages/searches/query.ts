import type { SearchQuery, SearchState } from "../../api/queries";
import { sortOf } from "../../app/listing";

export const STATES: readonly SearchState[] = [
  "running",
  "queued",
  "paused",
  "finished",
  "failed",
  "cancelled",
];

export const SORTS = [
  "created",
  "score",
  "limit",
  "cost",
  "candidates",
  "time",
  "tokens",
  "updated",
] as const;

/** What the address may leave out of the list. */
export const FILTERS = ["state", "op", "target", "tag", "archived", "text"] as const;

/** The states that the address names, and no others. */
export function statesOf(params: URLSearchParams): SearchState[] {
  const named = params.getAll("state");
  return STATES.filter((state) => named.includes(state));
}

/** What the address asks of the service. */
export function searchQuery(params: URLSearchParams): SearchQuery {
  const states = statesOf(params);
  const { key, descending } = sortOf(params, SORTS);
  const text = (name: "op" | "target" | "text" | "after") => {
    const value = params.get(name);
    return value ? { [name]: value } : {};
  };
  return {
    ...(states.length > 0 && { state: states }),
    ...text("op"),
    ...text("target"),
    ...text("text"),
    ...(params.get("tag") && { tag: params.getAll("tag") }),
    ...(params.get("archived") === "yes" && { archived: "yes" as const }),
    ...text("after"),
    sort: key as (typeof SORTS)[number],
    order: descending ? "desc" : "asc",
  };
}

/** Whether anything is left out. */
export function isFiltered(params: URLSearchParams): boolean {
  return FILTERS.some((name) => params.get(name));
}
