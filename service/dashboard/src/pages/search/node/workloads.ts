/** Workloads as their table shows them. Pure. */

import type { ReportDocument, WorkloadReport } from "../../../api/node";
import { number, shareOfLimit } from "./failure";

/** The workload that failed first, then those that are timed, then the others; otherwise as they came. */
export function inOrder(report: Pick<ReportDocument, "workloads" | "failure">): WorkloadReport[] {
  const rank = ({ id, role }: WorkloadReport) =>
    id === report.failure?.workload ? 0 : role === "bench" ? 1 : 2;
  return [...report.workloads].sort((a, b) => rank(a) - rank(b));
}

/** Sizes in a line: `tokens 64, hidden 8192`. */
export function axesInWords(axes: WorkloadReport["axes"]): string {
  return Object.entries(axes ?? {})
    .map(([name, size]) => `${name} ${String(size)}`)
    .join(", ");
}

/** The family of inputs on which the candidate came closest to its limit; null where none has one. */
export function worstFamily(workload: Pick<WorkloadReport, "families">) {
  let worst: { name: string; share: number } | null = null;
  for (const { name, error, limit } of workload.families) {
    const share = shareOfLimit(error, limit) ?? (number(error) === 0 ? 0 : null);
    if (share !== null && share > (worst?.share ?? -1)) worst = { name, share };
  }
  return worst;
}
