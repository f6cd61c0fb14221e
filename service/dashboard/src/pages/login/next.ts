/** Where to go after signing in: a path of this page, never another site's address. */
export function safeNext(next: string | null): string {
  if (!next?.startsWith("/")) return "/";
  const url = new URL(next, location.origin);
  return url.origin === location.origin ? url.pathname + url.search + url.hash : "/";
}
