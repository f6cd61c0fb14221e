/** Lists whose filters, sort and page stand in the address bar. */

import { useCallback } from "react";
import { useLocation, useSearchParams } from "react-router";
import type { Sort } from "../design";

type Value = string | readonly string[] | null;

/** The parameters with `changes` made: null and empty values go. What changes the list begins at its first page. */
export function changed(params: URLSearchParams, changes: Readonly<Record<string, Value>>): URLSearchParams {
  const next = new URLSearchParams(params);
  if (!("after" in changes)) next.delete("after");
  for (const [name, value] of Object.entries(changes)) {
    next.delete(name);
    for (const one of typeof value === "string" ? [value] : (value ?? [])) if (one) next.append(name, one);
  }
  return next;
}

/** The sort that the address names, where it is one of `allowed`; else the first of those, from the largest. */
export function sortOf(params: URLSearchParams, allowed: readonly [string, ...string[]]): Sort {
  const key = allowed.find((name) => name === params.get("sort")) ?? allowed[0];
  return { key, descending: params.get("order") !== "asc" };
}

/** The keys of the pages before this one, as this tab walked them; empty where the address was opened as it is. */
function trailOf(state: unknown): readonly string[] {
  const trail = (state as { trail?: unknown } | null)?.trail;
  return Array.isArray(trail) ? trail.filter((key) => typeof key === "string") : [];
}

export function useListing() {
  const [params, setParams] = useSearchParams();
  const trail = trailOf(useLocation().state);
  const after = params.get("after");
  const set = useCallback(
    (changes: Readonly<Record<string, Value>>, { replace = false } = {}) =>
      setParams((old) => changed(old, changes), { replace, preventScrollReset: true }),
    [setParams],
  );
  return {
    params,
    set,
    /** Filters and sort as one address holds them, from the first page. */
    replaceAll: (next: URLSearchParams) => setParams(next, { preventScrollReset: true }),
    setSort: (sort: Sort) => set({ sort: sort.key, order: sort.descending ? null : "asc" }),
    after,
    /** The page's number, where this tab came by the pages before it. */
    page: after === null ? 1 : trail.length > 0 ? trail.length + 1 : null,
    toNext: (key: string) =>
      setParams((old) => changed(old, { after: key }), { state: { trail: [...trail, after ?? ""] } }),
    toPrevious: () =>
      setParams((old) => changed(old, { after: trail.at(-1) ?? null }), {
        state: { trail: trail.slice(0, -1) },
      }),
  };
}

export type Listing = ReturnType<typeof useListing>;
