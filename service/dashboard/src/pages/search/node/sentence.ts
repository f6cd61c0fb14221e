/** The one sentence that says what became of a node. Pure. */

import type { ReportDocument, WorkloadReport } from "../../../api/node";
import type { NodeSummary } from "../../../api/queries";
import { format } from "../../../design";
import { failureInWords } from "./failure";

type Told = Pick<
  NodeSummary,
  | "seq"
  | "state"
  | "verdict"
  | "gate"
  | "reason"
  | "score"
  | "ci95"
  | "limit_fraction"
  | "verification"
  | "mark"
  | "repairs"
>;

/** What is said of the node as it stands; `report` is the verdict that it stands by, once it is read. */
export function sentence(
  node: Told,
  report: Pick<ReportDocument, "failure" | "workloads"> | null,
  ended = false,
): string {
  if (node.seq === 0) return root(node);
  if (node.state === "closed") return closed(node);
  switch (node.verdict) {
    case "accepted":
      return accepted(node, report?.workloads ?? []);
    case "rejected":
      return `Rejected${at(node.gate)}: ${full(why(node, report))}`;
    case "quarantined":
      return `Quarantined${at(node.gate)}: its values are right, but it is too fast to be believed. ${full(why(node, report))}`;
    case "ambiguous":
      return `Ambiguous${at(node.gate)}: this host could not tell. ${full(why(node, report))}`;
    default:
      return ended && node.state === "planned" ? "Not tried: the search ended before." : underWay(node);
  }
}

function accepted(node: Told, workloads: readonly WorkloadReport[]): string {
  const share =
    node.limit_fraction === null ? "" : `, at ${format.percent(node.limit_fraction)} of the physical limit`;
  return `Accepted: ${speed(node, fastestBaseline(workloads))}${share}. ${verification(node.verification)}`;
}

/** How much faster than what; an interval that holds 1 shows no difference. */
function speed(node: Told, than: string): string {
  if (node.score === null) return `right, and its time was not compared with ${than}`;
  const [low, high] = node.ci95 ?? [];
  const interval = node.ci95 ? ` ${bracket(node.ci95)}` : "";
  if (low !== undefined && high !== undefined && low <= 1 && high >= 1)
    return `right, but not shown to differ in speed from ${than}, ${format.ratio(node.score)}${interval}`;
  if (node.score >= 1) return `${format.ratio(node.score)}${interval} as fast as ${than}`;
  return `right, but slower than ${than}, ${format.ratio(node.score)}${interval} as fast`;
}

function bracket(ci95: readonly number[]): string {
  return `[${ci95.map((end) => end.toFixed(2)).join(", ")}]`;
}

const VERIFICATION: Readonly<Record<string, string>> = {
  none: "It was screened on the bench workloads and is not verified in full.",
  open: "Its full verification is under way.",
  passed: "It was verified in full.",
  failed: "It did not pass the full verification.",
};

function verification(state: string): string {
  return VERIFICATION[state] ?? "";
}

/** The baseline to beat by name, where it is the same on every bench workload. */
export function fastestBaseline(workloads: readonly WorkloadReport[]): string {
  const names = new Set<string>();
  for (const { role, timings } of workloads) {
    const baselines = timings.filter(({ contender }) => contender !== "candidate");
    if (role !== "bench" || baselines.length === 0) continue;
    names.add(baselines.reduce((best, next) => (next.time_us < best.time_us ? next : best)).contender);
  }
  const [only] = names;
  return only && names.size === 1 ? contenderName(only) : "the fastest baseline";
}

const CONTENDERS: Readonly<Record<string, string>> = {
  candidate: "this candidate",
  eager: "PyTorch eager",
  compile: "torch.compile",
  max_autotune: "torch.compile max-autotune",
};

export function contenderName(name: string): string {
  return CONTENDERS[name] ?? format.words(name);
}

const SHORT: Readonly<Record<string, string>> = { max_autotune: "max-autotune" };

/** The same where there is little room. */
export function shortName(name: string): string {
  return SHORT[name] ?? format.words(name);
}

function root(node: Told): string {
  if (node.verdict === "accepted") return "The op's reference: it was admitted, and its baselines are timed.";
  if (node.verdict === null) return "The op's reference: its baselines are not measured yet.";
  return `The op's reference was not admitted${at(node.gate)}: ${full(node.reason ?? "no reason is known")}`;
}

const TWIN = /^(the repair changed nothing: )?duplicate of node #(\d+)( \(same binary\))?$/;

function closed(node: Told): string {
  const reason = node.reason ?? "";
  const twin = TWIN.exec(reason);
  if (twin) {
    const how = twin[3] ? "compiles to the same binary as" : "has the same code as";
    if (twin[1]) return `Duplicate: the repair changed nothing, and it ${how} before.`;
    return `Duplicate: it ${how} node #${twin[2]}, so it was not judged again.`;
  }
  const idea = /^the same idea as node #(\d+)$/.exec(reason);
  if (idea) return `Duplicate: the same idea as node #${idea[1]}, so no code was written.`;
  return `Closed: ${full(reason || "no reason is known")}`;
}

/** Whether a closed node repeats another. */
export function isDuplicate(node: Pick<NodeSummary, "state" | "reason">): boolean {
  const reason = node.reason ?? "";
  return node.state === "closed" && (TWIN.test(reason) || reason.startsWith("the same idea as node #"));
}

function underWay(node: Told): string {
  const again = node.repairs > 0 ? `, repair ${node.repairs}` : "";
  if (node.mark === "banned") return "Banned before it was judged: no more work is done on it.";
  switch (node.state) {
    case "planned":
      return "Planned: the idea waits to be written as code.";
    case "coding":
      return `A model writes the code${again}.`;
    case "coded":
      return `The code is written${again} and waits for the judge.`;
    case "judging":
      return `The judge checks and times it${again}.`;
    default:
      return `${format.words(node.state)}.`;
  }
}

function why(node: Told, report: Pick<ReportDocument, "failure"> | null): string {
  const { failure } = report ?? { failure: null };
  return failure ? failureInWords(failure) : (node.reason ?? "no reason is known");
}

function at(gate: string | null): string {
  return gate ? ` at the ${format.words(gate)} gate` : "";
}

/** With a full stop, unless it has an end of its own. */
function full(text: string): string {
  const trimmed = text.trim();
  return /[.!?]$/.test(trimmed) ? trimmed : `${trimmed}.`;
}
