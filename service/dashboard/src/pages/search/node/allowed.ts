/** What may be done with a node, and if not, why. Pure: the service refuses the same. */

import type { NodeDocument, SearchDocument } from "../../../api/queries";
import { ENDED } from "../ended";

type Node = Pick<NodeDocument, "seq" | "state" | "verdict" | "mark" | "source" | "kernel_id" | "best">;
type Search = Pick<SearchDocument, "state">;

interface Reasons {
  branch: string | null;
  pin: string | null;
  ban: string | null;
  idea: string | null;
  export: string | null;
}

/** For each action null, or why it cannot be had. */
export function reasons(node: Node, search: Search | undefined): Reasons {
  const ended = search !== undefined && ENDED.has(search.state);
  const over = "The search has ended. To go on from here, branch a new search.";
  const wait = search === undefined ? "The search is being read." : null;
  return {
    branch:
      wait ??
      (node.source
        ? null
        : node.seq === 0
          ? "Every new search begins with the reference anyway: submit one instead."
          : "A branch begins with code, and this node has none."),
    pin: wait ?? (ended ? over : null),
    ban: wait ?? (ended ? over : node.seq === 0 ? "A search may always go back to its root." : null),
    idea: wait ?? (ended ? over : parentReason(node)),
    export: node.kernel_id ? null : exportReason(node, ended),
  };
}

function parentReason(node: Node): string | null {
  if (node.mark === "banned") return "A banned node is no parent. Lift the ban first.";
  if (node.seq === 0 || (node.state === "judged" && node.verdict === "accepted")) return null;
  return "An idea builds on the root or on an accepted candidate.";
}

function exportReason(node: Node, ended: boolean): string {
  const only = "Only a kernel can be exported";
  if (node.best && !ended) return `${only}: the best node becomes one when the search ends.`;
  return `${only}: an accepted candidate that was verified in full and kept as the winner.`;
}
