/** What a request of /docs needs besides. Pure. */

/** What GET /v1/session says, as far as it matters here. */
export interface Session {
  keys_required: boolean;
  name: string | null;
  csrf_token?: string | null;
}

export interface SwaggerRequest {
  method?: string;
  headers: Record<string, string>;
}

const SAFE = new Set(["GET", "HEAD", "OPTIONS"]);

/** A change by the session's cookie needs the session's token; a key that was typed in needs none. */
export function authorize<Request extends SwaggerRequest>(request: Request, session: Session): Request {
  const typed = "Authorization" in request.headers;
  if (session.csrf_token && !typed && !SAFE.has((request.method ?? "GET").toUpperCase())) {
    request.headers["X-CSRF-Token"] = session.csrf_token;
  }
  return request;
}

/** The page to sign in at, and this one after it: by one address, whichever of its names was asked for. */
export function loginPath({ search, hash }: { search: string; hash: string }): string {
  return `/login?next=${encodeURIComponent(`/docs${search}${hash}`)}`;
}
