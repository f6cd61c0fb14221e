"""The dashboard's built files, its one page for the address of every page, and the API's reference at /docs.

They need no key: the files are the same for all callers, and get their data from the API.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from fastapi.responses import HTMLResponse, Response
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Receive, Scope, Send

DIST = Path(__file__).resolve().parents[1] / "dashboard" / "dist"
READING = frozenset({"GET", "HEAD"})
DOCS = "docs.html"
DOCS_PATHS = frozenset({"/docs", "/redoc"})
"""Addresses at which people look for an API's reference: a page for every client, as from other FastAPI services."""

API_PATHS = frozenset({"/healthz", "/readyz", "/metrics", "/openapi.json", "/v1"})
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; font-src 'self'; "
    "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
ABSENT = """<!doctype html>
<html lang="en">
<head><meta charset="utf-8"><title>Warpsmith</title></head>
<body>
<main>
<h1>The dashboard is not built</h1>
<p>The service itself works: its API answers under <code>/v1</code>, and the command line reaches all of it.</p>
<p>To build the dashboard, run this where Warpsmith's source is, then load this page again:</p>
<pre>cd service/dashboard
npm ci
npm run build</pre>
</main>
</body>
</html>
"""


def is_page(path: str) -> bool:
    """Check whether `path` belongs to the dashboard and not to the API."""
    return path not in API_PATHS and not path.startswith("/v1/")


@dataclass(frozen=True)
class _Route:
    """The route that the request log sees, so that metrics tell pages from unknown paths."""

    path: str


class Dashboard:
    """Answers requests without a route: by a file of the dashboard, its page, or `absent`.

    The browser's side routes by address, so every request for `text/html` gets the one page.
    """

    def __init__(self, dist: Path, absent: ASGIApp) -> None:
        self.dist = dist
        self.absent = absent
        self.files = StaticFiles(directory=dist, check_dir=False)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request; no path leads outside of `dist`."""
        response = await self._make_response(scope) if scope["type"] == "http" else None
        if response is None:
            await self.absent(scope, receive, send)
            return
        scope["route"] = _Route("/{page}")
        response.headers["Content-Security-Policy"] = POLICY
        await response(scope, receive, send)

    async def _make_response(self, scope: Scope) -> Response | None:
        path = scope["path"]
        if scope["method"] not in READING or not is_page(path):
            return None
        if not (self.dist / "index.html").is_file():
            return HTMLResponse(ABSENT, 503) if _wants_page(scope) else None
        name = self.files.get_path(scope)
        found = await self._find_file(name, scope)
        if found is not None:
            # The build names these files by their content; all others may change under their names.
            asset = name.startswith("assets/")
            found.headers["Cache-Control"] = "public, max-age=31536000, immutable" if asset else "no-cache"
            return found
        docs = path.rstrip("/") in DOCS_PATHS
        if not docs and (not _wants_page(scope) or path.startswith("/assets/")):
            return None
        page = await self._find_file(DOCS if docs else "index.html", scope)
        if page is None:  # built before there was this page
            return HTMLResponse(ABSENT, 503) if _wants_page(scope) else None
        page.headers["Cache-Control"] = "no-cache"
        return page

    async def _find_file(self, name: str, scope: Scope) -> Response | None:
        try:
            return await self.files.get_response(name, scope)
        except HTTPException:
            return None


def _wants_page(scope: Scope) -> bool:
    return "text/html" in Headers(scope=scope).get("accept", "")
