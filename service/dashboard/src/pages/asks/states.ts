import type { AskDocument, AskState } from "../../api/queries";
import { PLANS } from "./kinds";

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

/** States in which nothing more happens to a node, and to a step. */
const SETTLED = new Set(["verified", "failed", "closed", "banned"]);
const AT_WORK = new Set(["waiting", "pending", "running"]);

/** Whether nothing more becomes of the ask. The node of one for ideas is their parent, which was settled before. */
export function isOver({ kind, state, step, node }: AskDocument): boolean {
  if (state !== "answered") return state === "withdrawn";
  return PLANS.has(kind) ? !AT_WORK.has(step.state) : SETTLED.has(node.state);
}
