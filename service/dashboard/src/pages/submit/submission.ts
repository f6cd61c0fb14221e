/** From the form to what the service is asked: pure. */

import type { Schemas } from "../../api/client";
import type { OptionsDocument } from "../../api/queries";
import { languagesFor } from "../../app/languages";
import { limitProblem } from "../search/limits";
import { parseTags } from "../search/steer/labels";
import type { Draft, Provider } from "./draft";

export type CheckedSpec = Schemas["CheckedSpec"];
export type Submission = Schemas["SearchRequest"];
type Pool = Pick<Schemas["PoolDocument"], "id" | "header">;
type Parameter = OptionsDocument["policies"][number]["parameters"][number];

interface Limit {
  label: string;
  hint: string;
  /** How many of the service's units one of the form's is. */
  scale: number;
}

const LIMITS: Readonly<Record<string, Limit>> = {
  candidates: { label: "Candidates", hint: "kernels that are judged", scale: 1 },
  cost_usd: { label: "Cost, US dollars", hint: "what the model's provider charges", scale: 1 },
  wall_clock_s: { label: "Time, minutes", hint: "while it runs; pauses are left out", scale: 60 },
  model_calls: { label: "Model calls", hint: "requests to the model", scale: 1 },
  tokens: { label: "Tokens", hint: "read and written", scale: 1 },
  gpu_seconds: { label: "Device time, minutes", hint: "while the judge holds the device", scale: 60 },
  try_seconds: {
    label: "Tries, minutes",
    hint: "device time to try candidates; 5 where none is given",
    scale: 60,
  },
  sweep_seconds: { label: "Sweeps, minutes", hint: "of device time, to choose tunables", scale: 60 },
};

/** The limits that the service takes, those first that people set most. */
export function limitsOf(names: readonly string[]): (Limit & { name: string })[] {
  const place = (name: string) => (name in LIMITS ? Object.keys(LIMITS).indexOf(name) : names.length);
  return [...names]
    .sort((a, b) => place(a) - place(b))
    .map((name) => ({ name, ...(LIMITS[name] ?? { label: name, hint: "", scale: 1 }) }));
}

/** The options with the targets first that the op has workloads for: the first is the default. */
export function optionsFor(options: OptionsDocument, spec: Pick<CheckedSpec, "devices"> | undefined) {
  const devices = spec?.devices ?? [];
  if (devices.length === 0) return options;
  const first = options.targets.filter(({ device }) => devices.includes(device));
  return { ...options, targets: [...first, ...options.targets.filter((one) => !first.includes(one))] };
}

/** The provider that was chosen, else one that would work now; `pool` is one that fits op and target, or none. */
export function providerOf(draft: Draft, options: OptionsDocument, pool: string): Provider {
  if (draft.provider) return draft.provider;
  if (options.providers.some(({ name, ready }) => name === "openai" && ready)) return "openai";
  return pool ? "replay" : "agent";
}

/** The pool that was chosen, else the newest that was recorded for the op and can be replayed on the target. */
export function poolOf(
  draft: Draft,
  op: string | null | undefined,
  target: string,
  pools: readonly Pool[],
): string {
  if (draft.pool) return draft.pool;
  const fits = pools.find(({ header }) => header.op === op && header.target === target);
  return fits?.id ?? "";
}

/** The target that was chosen, else the first that is offered, which has a live worker if any has. */
export function targetOf(draft: Draft, options: OptionsDocument): string {
  if (draft.otherTarget) return draft.target.trim();
  const offered = options.targets.map(({ target }) => target);
  return offered.includes(draft.target) ? draft.target : (offered[0] ?? "");
}

/** The type of device of a target: `cuda` of `cuda:sm_90`. */
export function deviceOf(target: string): string {
  return target.split(":")[0] ?? "";
}

/** Languages for a target, the default first. */
export function languagesOf(target: string, options: OptionsDocument): readonly string[] {
  const offered = options.targets.find((option) => option.target === target);
  return offered?.languages ?? languagesFor(deviceOf(target));
}

type Problems = Readonly<Record<string, string>>;

/** What would be sent, or by field why it cannot be yet. */
export function submissionOf(
  draft: Draft,
  spec: CheckedSpec,
  options: OptionsDocument,
  pools: readonly Pool[],
): { body: Submission; problems: null } | { body: null; problems: Problems } {
  const problems: Record<string, string> = {};
  const target = targetOf(draft, options);
  if (!target) problems.target = "Name a target, such as cuda:sm_90";

  const budget: Record<string, number> = {};
  for (const { name, scale } of limitsOf(options.limits)) {
    const typed = draft.budget[name]?.trim();
    if (!typed) continue;
    const wrong = limitProblem(name, typed, scale);
    if (wrong) problems[`budget.${name}`] = wrong;
    else budget[name] = scaled(Number(typed), scale);
  }

  const seeds = draft.seeds.trim();
  const most = options.most_seeds;
  if (seeds && !(Number.isInteger(Number(seeds)) && Number(seeds) >= 0 && Number(seeds) <= most))
    problems.seeds = `found ${seeds}, expected a whole number from 0 to ${most}`;

  const pool = poolOf(draft, spec.name, target, pools);
  const provider = providerOf(draft, options, pool);
  if (provider === "replay" && !pool) problems["model.pool"] = "Choose the pool to replay";
  const policy = policyOf(draft, options, problems);
  if (Object.keys(problems).length > 0) return { body: null, problems };

  const languages = languagesOf(target, options);
  const tags = parseTags(draft.tags);
  return {
    problems: null,
    body: {
      ...(spec.op_id ? { op_id: spec.op_id } : { op: spec.spec ?? {} }),
      target,
      ...(languages.includes(draft.language) && { language: draft.language }),
      ...(policy && { policy }),
      ...(Object.keys(budget).length > 0 && { budget }),
      model: modelOf(draft, provider, pool),
      ...(seeds && { seeds: Number(seeds) }),
      ...(draft.name.trim() && { name: draft.name.trim() }),
      ...(tags.length > 0 && { tags }),
    },
  };
}

/** Minutes such as 0.1 are not exact, seconds are. */
function scaled(value: number, scale: number): number {
  return scale === 1 ? value : Number((value * scale).toPrecision(12));
}

function modelOf(draft: Draft, provider: Provider, pool: string): Record<string, string> {
  if (provider === "agent") return { provider };
  if (provider === "replay") return { provider, pool };
  const model = draft.model.trim();
  const base_url = draft.baseUrl.trim();
  return { provider, ...(model && { model }), ...(base_url && { base_url }) };
}

/** The policy with the parameters that were typed; nothing where neither was touched. */
function policyOf(draft: Draft, options: OptionsDocument, problems: Record<string, string>) {
  const chosen = options.policies.find(({ name }) => name === draft.policy);
  if (!chosen) return null;
  const policy: Record<string, string | number | boolean> = { name: chosen.name };
  for (const parameter of chosen.parameters) {
    const typed = draft.parameters[chosen.name]?.[parameter.name]?.trim();
    if (!typed) continue;
    const value = typedValue(typed, parameter);
    if (value === null)
      problems[`policy.${parameter.name}`] = `found ${typed}, expected ${rangeOf(parameter)}`;
    else policy[parameter.name] = value;
  }
  return policy;
}

function typedValue(typed: string, { type, minimum, maximum, above }: Parameter): number | boolean | null {
  if (type === "boolean") return typed === "true";
  const value = Number(typed);
  if (!Number.isFinite(value) || (type === "integer" && !Number.isInteger(value))) return null;
  if (typeof minimum === "number" && (above ? value <= minimum : value < minimum)) return null;
  if (typeof maximum === "number" && value > maximum) return null;
  return value;
}

/** What a parameter may be: `a whole number from 1 to 64`. */
export function rangeOf({ type, minimum, maximum, above }: Parameter): string {
  const kind = type === "integer" ? "a whole number" : type === "number" ? "a number" : "yes or no";
  const low = typeof minimum === "number" ? ` ${above ? "above" : "from"} ${minimum}` : "";
  const high = typeof maximum === "number" ? ` ${above ? "and up to" : "to"} ${maximum}` : "";
  return `${kind}${low}${high}`;
}
