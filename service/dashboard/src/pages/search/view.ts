import { useCallback } from "react";
import { useSearchParams } from "react-router";

/** The tabs of a search; the address bar names the selected one. */
export const TABS = [
  { key: "tree", label: "Tree" },
  { key: "list", label: "List" },
  { key: "progress", label: "Progress" },
  { key: "mattered", label: "What mattered" },
  { key: "asks", label: "Asks" },
  { key: "story", label: "Story" },
  { key: "spec", label: "Spec" },
] as const;

/** What is said of one node alone goes when another one is opened. */
export const OF_ONE_NODE = { verdict: null, against: null };

export type TabKey = (typeof TABS)[number]["key"];

/**
 * What the address bar says of a search's page: `?tab=`, `?node=` and, of a node, `?view=`, the verdict that is shown
 * in place of the latest (`?verdict=`), and what its code is compared with (`?against=`).
 */
export function useView() {
  const [params, setParams] = useSearchParams();
  const set = useCallback(
    (changes: Record<string, string | null>, replace = false) =>
      setParams(
        (old) => {
          const next = new URLSearchParams(old);
          for (const [name, value] of Object.entries(changes)) {
            if (value === null) next.delete(name);
            else next.set(name, value);
          }
          return next;
        },
        { replace, preventScrollReset: true },
      ),
    [setParams],
  );
  const asked = params.get("tab");
  const tab: TabKey = TABS.find(({ key }) => key === asked)?.key ?? TABS[0].key;
  return {
    tab,
    nodeId: params.get("node"),
    view: params.get("view"),
    verdict: params.get("verdict"),
    against: params.get("against"),
    /** Sets parameters of the address; null removes one. What is typed replaces the address, a choice is a step back. */
    set,
    setTab: useCallback((key: TabKey) => set({ tab: key }), [set]),
    /** Opens a node, or closes it with null. */
    setNode: useCallback(
      (id: string | null) => set({ node: id, ...OF_ONE_NODE, ...(id === null && { view: null }) }),
      [set],
    ),
    setView: useCallback((view: string) => set({ view }), [set]),
    /** Shows another verdict in a view; null is the one that the node stands by. */
    setVerdict: useCallback((verdict: string | null, view: string) => set({ verdict, view }), [set]),
    setAgainst: useCallback((against: string) => set({ against }), [set]),
  };
}
