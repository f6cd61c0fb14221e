import createClient, { type Middleware } from "openapi-fetch";
import { ProblemError } from "./problem";
import type { components, paths } from "./schema";

export type Schemas = components["schemas"];

const listeners = new Set<(ended: boolean) => void>();

/** Calls `tell` when the service asks for a login, with whether a session ended, rather than none was begun. */
export function onLoginRequired(tell: (ended: boolean) => void): () => void {
  listeners.add(tell);
  return () => listeners.delete(tell);
}

function requireLogin(): void {
  if (token !== null) ended = true;
  for (const tell of listeners) tell(ended);
}

const watchers = new Set<(reached: boolean) => void>();

/** Calls `tell` after each request with whether the service answered. */
export function onReach(tell: (reached: boolean) => void): () => void {
  watchers.add(tell);
  return () => watchers.delete(tell);
}

/** A proxy answers these for a service that is away. */
const AWAY = new Set([502, 504]);

const SAFE = new Set(["GET", "HEAD", "OPTIONS"]);

const problems: Middleware = {
  onRequest({ request }) {
    const token = csrfToken();
    if (token && !SAFE.has(request.method)) request.headers.set("X-CSRF-Token", token);
    return request;
  },
  async onResponse({ response, request }) {
    for (const tell of watchers) tell(!AWAY.has(response.status));
    if (response.ok) return;
    const problem = await ProblemError.from(response);
    if (response.status === 401 && !request.url.endsWith("/session")) requireLogin();
    throw problem;
  },
  onError({ error }) {
    // A request that was given up is no failure of the service.
    if (error instanceof DOMException && error.name === "AbortError") return error;
    for (const tell of watchers) tell(false);
    return ProblemError.unreachable(error);
  },
};

/** The one way to the service. Answers that are no success are thrown as ProblemError. */
export const api = createClient<paths>({
  baseUrl: typeof location === "undefined" ? "http://localhost" : location.origin,
  credentials: "same-origin",
  // Looked up at each call, so that a test may stand in for the network.
  fetch: (request) => globalThis.fetch(request),
});
api.use(problems);

/** What a call brought; a success of these routes always has a body. */
export async function answer<Data>(call: Promise<{ data?: Data }>): Promise<NonNullable<Data>> {
  const { data } = await call;
  if (data === undefined || data === null)
    throw ProblemError.fromBody(200, null, "without the body that was expected");
  return data;
}

/** What a call brought; null where there is no such thing. */
export async function answerOrNull<Data>(call: Promise<{ data?: Data }>): Promise<NonNullable<Data> | null> {
  try {
    return await answer(call);
  } catch (error) {
    if (error instanceof ProblemError && error.status === 404) return null;
    throw error;
  }
}

/** A fresh Idempotency-Key: make one when a form is opened, so that a request sent again is done once. */
export function idempotencyKey(): string {
  const random = crypto.getRandomValues(new Uint8Array(16));
  return Array.from(random, (byte) => byte.toString(16).padStart(2, "0")).join("");
}

let token: string | null = null;
// Of many requests that are refused, later ones find no token any more: it still is the end of a session.
let ended = false;

/** What a session's changes carry; the service tells it with the session. */
export function setCsrfToken(value: string | null): void {
  token = value;
  if (value !== null) ended = false;
}

/** Keeps the token that the service tells now; where it knows the session no more, the login comes first. */
export function renewCsrfToken(value: string | null): void {
  if (token !== null && value === null) requireLogin();
  setCsrfToken(value);
}

function csrfToken(): string | null {
  return token;
}
