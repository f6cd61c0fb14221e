/** A kernel's stored evidence, envelope and lineage as the page shows them: JSON that older versions may have written,
 * so nothing in it is taken for granted. Pure. */

import type { KernelDocument } from "../../api/queries";
import type { AttackSummary } from "../../app/attack";
import * as format from "../../design/format";

interface Timing {
  contender: string;
  timeUs: number | null;
  speedup: number | null;
  ci95: readonly number[] | null;
}

export interface Workload {
  id: string;
  role: string;
  weight: number;
  axes: Readonly<Record<string, number>>;
  error: number | null;
  errorOfEager: number | null;
  errorLimit: number | null;
  repeatable: boolean | null;
  limitFraction: number | null;
  limitBy: string | null;
  /** By baseline: why it was not timed. */
  notTimed: Record<string, string>;
  /** The candidate first; empty where only values were checked. */
  timings: readonly Timing[];
}

interface Evidence {
  workloads: readonly Workload[];
  device: string | null;
  facts: readonly (readonly [string, string])[];
  versions: readonly (readonly [string, string])[];
  sandbox: string | null;
  layers: readonly string[];
  fingerprint: string | null;
  attack: AttackSummary | null;
}

interface Axis {
  name: string;
  verified: readonly number[];
}

interface Envelope {
  axes: readonly Axis[];
  inputs: readonly { name: string; type: string; note: string }[];
  outputs: readonly { name: string; type: string }[];
}

export interface Step {
  nodeId: string | null;
  seq: number | null;
  technique: string | null;
  title: string | null;
  mechanism: string | null;
  verdict: string | null;
  score: number | null;
  repairs: number;
}

type Json = Readonly<Record<string, unknown>>;

export function evidenceOf(kernel: Pick<KernelDocument, "evidence" | "workloads">): Evidence {
  const found = kernel.evidence;
  const axes = new Map(kernel.workloads?.map((workload) => [workload.id, workload.axes]));
  const device = record(found.device);
  const sandbox = record(found.sandbox);
  return {
    workloads: list(found.workloads).map((item) => workloadOf(item, numbers(axes.get(text(item.id) ?? "")))),
    device: text(device.name),
    facts: pairs(device, ["name", "peaks"]),
    versions: [...pairs(record(found.versions)), ...expertsOf(record(found.experts))],
    sandbox: text(sandbox.level),
    layers: strings(sandbox.layers),
    fingerprint: text(found.fingerprint),
    attack: attackOf(found.attack),
  };
}

type Host = NonNullable<KernelDocument["host_us"]>;

/** What the host's time of a call is beside: by what it was called, where, and PyTorch's own. */
export function hostInWords({ plan, launches, eager, workload }: Host): string {
  const launched = launches === 1 ? "1 launch" : `${launches} launches`;
  const by = plan == null ? "a call by its run" : `a call by a plan of ${launched}`;
  return `${by}, ${workload}; eager ${format.micros(eager)}`;
}

function attackOf(value: unknown): AttackSummary | null {
  const attack = record(value);
  const tries = number(attack.tries);
  if (tries === null) return null;
  const ratios = list(attack.workloads).map(({ ratio }) => number(ratio));
  const known = ratios.filter((ratio) => ratio !== null);
  return {
    tries,
    ratio: known.length > 0 ? Math.max(...known) : null,
    found: Object.keys(record(attack.counterexample)).length > 0,
    skipped: text(attack.skipped),
  };
}

function workloadOf(item: Json, axes: Record<string, number>): Workload {
  const error = record(item.error);
  const speedup = record(item.speedup);
  const ci95 = record(item.ci95);
  const times = Object.entries(record(item.time_us)).map(
    ([contender, time]): Timing => ({
      contender,
      timeUs: number(time),
      speedup: number(speedup[contender]),
      ci95: interval(ci95[contender]),
    }),
  );
  const candidate = times.filter(({ contender }) => contender === "candidate");
  return {
    id: text(item.id) ?? "",
    role: text(item.role) ?? "",
    axes,
    weight: number(item.weight) ?? 1,
    error: number(error.candidate),
    errorOfEager: number(error.eager),
    errorLimit: number(error.limit),
    repeatable: typeof item.repeatable === "boolean" ? item.repeatable : null,
    limitFraction: number(item.limit_fraction),
    limitBy: text(item.limit_by),
    notTimed: Object.fromEntries(
      Object.entries(record(item.not_timed)).map(([name, why]) => [name, text(why) ?? ""]),
    ),
    timings: [...candidate, ...times.filter(({ contender }) => contender !== "candidate")],
  };
}

export function envelopeOf(envelope: Json): Envelope {
  const typed = (item: Json) => ({ name: text(item.name) ?? "", type: text(item.dtype) ?? "" });
  return {
    axes: Object.entries(record(envelope.axes)).map(([name, axis]) => ({
      name,
      verified: (array(record(axis).verified) ?? []).filter((value) => typeof value === "number"),
    })),
    inputs: list(envelope.inputs).map((item) => {
      const rank = number(item.rank);
      const shape = rank === null ? "scalar" : `${rank} ${rank === 1 ? "axis" : "axes"}`;
      const notes = [
        item.contiguous === true && rank !== null && "contiguous",
        item.mutated === true && "written to",
      ];
      return { ...typed(item), note: [shape, ...notes.filter(Boolean)].join(", ") };
    }),
    outputs: list(envelope.outputs).map(typed),
  };
}

/** From the reference to the winner; the root has no idea. */
export function lineageOf(lineage: readonly Json[]): Step[] {
  return lineage.map((entry) => {
    const idea = record(entry.idea);
    return {
      nodeId: text(entry.node_id),
      seq: number(entry.seq),
      technique: text(entry.technique) ?? text(idea.technique),
      title: text(idea.title),
      mechanism: text(idea.mechanism),
      verdict: text(entry.verdict),
      score: number(entry.score),
      repairs: number(entry.repairs) ?? 0,
    };
  });
}

/** Sizes in a line: `tokens 64 · hidden 8,192`. */
export function axesInWords(axes: Readonly<Record<string, unknown>> | null | undefined): string {
  return Object.entries(axes ?? {})
    .map(
      ([name, size]) => `${name} ${typeof size === "number" ? size.toLocaleString("en-GB") : String(size)}`,
    )
    .join(" · ");
}

function record(value: unknown): Json {
  return typeof value === "object" && value !== null && !Array.isArray(value) ? (value as Json) : {};
}

function array(value: unknown): unknown[] | null {
  return Array.isArray(value) ? value : null;
}

function list(value: unknown): Json[] {
  return (array(value) ?? []).map(record);
}

function strings(value: unknown): string[] {
  return (array(value) ?? []).filter((item) => typeof item === "string");
}

function text(value: unknown): string | null {
  return typeof value === "string" ? value : null;
}

function number(value: unknown): number | null {
  return typeof value === "number" && Number.isFinite(value) ? value : null;
}

function numbers(value: unknown): Record<string, number> {
  return Object.fromEntries(
    Object.entries(record(value)).filter((entry): entry is [string, number] => typeof entry[1] === "number"),
  );
}

function interval(value: unknown): number[] | null {
  const [low, high] = array(value) ?? [];
  return typeof low === "number" && typeof high === "number" ? [low, high] : null;
}

/** Names and values of what is not nested. */
/** The packages that the op's experts are of, with their versions. */
function expertsOf(experts: Json): (readonly [string, string])[] {
  return Object.entries(experts)
    .map(
      ([name, packages]) =>
        [
          name,
          pairs(record(packages))
            .map((one) => one.join(" "))
            .join(", "),
        ] as const,
    )
    .filter(([, packages]) => packages !== "");
}

function pairs(values: Json, without: readonly string[] = []): (readonly [string, string])[] {
  return Object.entries(values)
    .filter(([name, value]) => !without.includes(name) && (typeof value !== "object" || Array.isArray(value)))
    .map(([name, value]) => [name, Array.isArray(value) ? value.join(", ") : String(value)] as const);
}
