/** The states in which a search stays. */
export const ENDED: ReadonlySet<string> = new Set(["finished", "failed", "cancelled"]);
