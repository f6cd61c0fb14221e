import type { SearchDocument } from "../../../api/queries";
import { amount, LIMITS, type LimitName, limitOf, limitProblem } from "../limits";

type BudgetDraft = Readonly<Record<LimitName, string>>;

/** The limits as the form shows them; none is an empty field. */
export function draftOf(budget: SearchDocument["budget"]): BudgetDraft {
  const entries = LIMITS.map((name) => [name, limitOf(budget, name)?.toString() ?? ""]);
  return Object.fromEntries(entries) as BudgetDraft;
}

interface BudgetChange {
  /** What to send: only what differs; null lifts a limit. */
  change: Record<string, number | null>;
  errors: Partial<Record<LimitName, string>>;
}

/** What a filled form changes, and which of its fields the service would refuse. */
export function changeOf(draft: BudgetDraft, search: Pick<SearchDocument, "budget" | "spend">): BudgetChange {
  const change: BudgetChange["change"] = {};
  const errors: BudgetChange["errors"] = {};
  for (const name of LIMITS) {
    const text = draft[name].trim();
    const now = limitOf(search.budget, name);
    if (text === "") {
      if (now !== null) change[name] = null;
      continue;
    }
    const value = Number(text);
    const used = search.spend[name];
    if (value === now) continue;
    const problem = limitProblem(name, text);
    if (problem) errors[name] = `${problem}, or nothing for no limit`;
    else if (used !== null && used !== undefined && value < used)
      errors[name] = `${amount(name, used)} are spent: expected at least as much`;
    else change[name] = value;
  }
  return { change, errors };
}
