/** Filters and sorts that this browser keeps under a name. The address says what is chosen; this only remembers it. */

import { useState } from "react";
import { FILTERS } from "./query";

const KEY = "warpsmith-saved-searches";
const MOST = 20;
const KEPT: readonly string[] = [...FILTERS, "sort", "order"];

export interface Saved {
  name: string;
  /** The address's parameters, sorted, without the page. */
  query: string;
}

/** What of an address is a filter or a sort, as text that two equal choices share. */
export function choiceOf(params: URLSearchParams): string {
  const kept = [...params].filter(([name, value]) => KEPT.includes(name) && value);
  kept.sort(([a, x], [b, y]) => (a === b ? (x < y ? -1 : 1) : a < b ? -1 : 1));
  return new URLSearchParams(kept).toString();
}

/** With one more; the same name is written over. */
export function withSaved(saved: readonly Saved[], one: Saved): Saved[] {
  return [...saved.filter(({ name }) => name !== one.name), one].slice(-MOST);
}

/** What the browser kept, without anything that is no such list. */
export function parseSaved(text: string | null): Saved[] {
  try {
    const found: unknown = JSON.parse(text ?? "[]");
    if (!Array.isArray(found)) return [];
    return found
      .filter((one): one is Saved => typeof one?.name === "string" && typeof one?.query === "string")
      .map(({ name, query }) => ({ name, query: choiceOf(new URLSearchParams(query)) }))
      .slice(-MOST);
  } catch {
    return [];
  }
}

export function useSaved() {
  const [saved, setSaved] = useState<readonly Saved[]>(() => parseSaved(read()));
  function change(next: readonly Saved[]) {
    setSaved(next);
    try {
      localStorage.setItem(KEY, JSON.stringify(next));
    } catch {
      // A browser that keeps nothing still has them until the page is left.
    }
  }
  return {
    saved,
    save: (one: Saved) => change(withSaved(saved, one)),
    forget: (name: string) => change(saved.filter((one) => one.name !== name)),
  };
}

function read(): string | null {
  try {
    return localStorage.getItem(KEY);
  } catch {
    return null;
  }
}
