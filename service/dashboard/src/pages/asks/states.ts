import type { AskState } from "../../api/queries";

/** The states besides open, which is what the list shows unless the address says otherwise. */
export const STATES = ["answered", "expired", "withdrawn", "all"] as const satisfies (AskState | "all")[];

export const STATE_NAMES: ReadonlyMap<string, string> = new Map([
  ["answered", "Answered"],
  ["expired", "Expired"],
  ["withdrawn", "Withdrawn"],
  ["all", "In any state"],
]);

/** The state that the address asks for. */
export function stateOf(params: URLSearchParams): AskState | "all" {
  return STATES.find((state) => state === params.get("state")) ?? "open";
}
