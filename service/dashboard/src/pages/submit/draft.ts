/** What the form holds: kept in this tab's session storage, so that leaving the page loses nothing. */

import { idempotencyKey } from "../../api/client";

const PROVIDERS = ["openai", "replay", "agent"] as const;
export type Provider = (typeof PROVIDERS)[number];

/** Fields as they are typed; an empty one leaves the choice to the service. */
export interface Draft {
  text: string;
  target: string;
  /** Whether the target is typed, in place of one that is offered. */
  otherTarget: boolean;
  language: string;
  provider: Provider | "";
  model: string;
  baseUrl: string;
  pool: string;
  policy: string;
  /** By policy, so that trying another one loses nothing. */
  parameters: Record<string, Record<string, string>>;
  budget: Record<string, string>;
  seeds: string;
  name: string;
  /** Between commas. */
  tags: string;
}

export const EMPTY: Draft = {
  text: "",
  target: "",
  otherTarget: false,
  language: "",
  provider: "",
  model: "",
  baseUrl: "",
  pool: "",
  policy: "",
  parameters: {},
  budget: { candidates: "20" },
  seeds: "",
  name: "",
  tags: "",
};

const DRAFT = "warpsmith-draft";
const SENT = "warpsmith-sent";

/** The kept draft; fields that are absent or of another form are those of an empty one. */
export function parseDraft(stored: string | null): Draft {
  const found = readJson(stored);
  if (!isRecord(found)) return EMPTY;
  const fields = Object.entries(EMPTY).map(([name, empty]) => {
    const value = found[name];
    const alike = typeof value === typeof empty && isRecord(value) === isRecord(empty);
    return [name, alike ? value : empty];
  });
  const draft = Object.fromEntries(fields) as Draft;
  return { ...draft, provider: PROVIDERS.find((name) => name === draft.provider) ?? "" };
}

export function readDraft(): Draft {
  return parseDraft(read(DRAFT));
}

export function keepDraft(draft: Draft): void {
  write(DRAFT, JSON.stringify(draft));
}

/** Forgets the draft and its key: what is submitted next is another search. */
export function dropDraft(): void {
  write(DRAFT, null);
  write(SENT, null);
}

/**
 * The Idempotency-Key of a submission: the same for the same body until its search is known to have begun, even where
 * the page was loaded again in between.
 */
export function keyFor(body: unknown): string {
  const text = JSON.stringify(body);
  const sent = readJson(read(SENT));
  if (isRecord(sent) && sent.body === text && typeof sent.key === "string") return sent.key;
  const key = idempotencyKey();
  write(SENT, JSON.stringify({ body: text, key }));
  return key;
}

function isRecord(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

function readJson(text: string | null): unknown {
  try {
    return text === null ? null : JSON.parse(text);
  } catch {
    return null;
  }
}

function read(name: string): string | null {
  try {
    return sessionStorage.getItem(name);
  } catch {
    return kept.get(name) ?? null;
  }
}

/** Stands in where the browser refuses storage. */
const kept = new Map<string, string>();

function write(name: string, value: string | null): void {
  try {
    if (value === null) sessionStorage.removeItem(name);
    else sessionStorage.setItem(name, value);
  } catch {
    if (value === null) kept.delete(name);
    else kept.set(name, value);
  }
}
