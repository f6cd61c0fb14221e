/** What the rows that are chosen allow. Pure. */

import type { SearchSummary } from "../../api/queries";

export const MOST_COMPARED = 8;

/** Why these cannot be compared, or null. Speed-ups of different ops say nothing of each other. */
export function comparable(rows: readonly Pick<SearchSummary, "op_name">[]): string | null {
  if (rows.length < 2) return "Choose two or more of one op to compare them.";
  if (rows.length > MOST_COMPARED) return `At most ${MOST_COMPARED} are compared at once.`;
  const ops = new Set(rows.map(({ op_name }) => op_name));
  return ops.size > 1 ? "They are of different ops, whose speed-ups cannot be compared." : null;
}

/** The address of the comparison, in the order of the list. */
export function compareAddress(rows: readonly Pick<SearchSummary, "id">[]): string {
  return `/searches/compare?${new URLSearchParams(rows.map(({ id }) => ["search", id])).toString()}`;
}
