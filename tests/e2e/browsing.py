"""Debian's Chromium on the dashboard: a visit records what the page asked for and what went wrong on it."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

import httpx
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, BrowserContext, Dialog, Page, expect, sync_playwright

from tests import REPOSITORY
from tests.services import absent

DIST = REPOSITORY / "service" / "dashboard" / "dist"
WIDE, NARROW = (1280, 800), (390, 844)
PATIENCE_MS = 20_000
SERIOUS = ("serious", "critical")
# Chromium looks for updates and reports of its own; a closed network refuses them one by one, slowly.
_QUIET = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
          "--disable-component-update", "--disable-sync"]  # fmt: skip

_WATCH = """
window.__executed = [];
document.addEventListener("securitypolicyviolation", (event) => {
  window.__refused = (window.__refused || []).concat(`${event.violatedDirective} ${event.blockedURI} ${event.sample}`);
});
"""
_LOADING = "[aria-busy=true], [role=status][aria-label=Loading]"

expect.set_options(timeout=PATIENCE_MS)  # five seconds otherwise, which a busy machine may need for a page


@contextmanager
def browser() -> Iterator[Browser]:
    """Chromium without a window."""
    path = os.environ.get("WARPSMITH_TEST_CHROMIUM") or shutil.which("chromium")
    if path is None:
        absent("no chromium on PATH")
    if not (DIST / "index.html").is_file():
        absent("the dashboard is not built: npm run build in service/dashboard")
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=path, args=_QUIET)
        yield chromium
        chromium.close()


@dataclass
class Visit:
    """One window on a served dashboard."""

    base: str
    context: BrowserContext
    page: Page
    requests: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)

    def open(self, path: str) -> Page:
        """Go to a page and wait until nothing on it is loading."""
        self.page.goto(self.base + path)
        self.page.wait_for_selector("h1")
        expect(self.page.locator(_LOADING)).to_have_count(0)
        return self.page

    def watch(self, page: Page) -> None:
        """Record the page's requests and failures."""
        page.set_default_timeout(PATIENCE_MS)
        page.on("request", lambda request: self.requests.append(request.url))
        page.on("pageerror", lambda error: self.errors.append(f"error: {error}"))
        page.on("dialog", self._refuse)
        # Some things are asked for that need not be there, such as a node's profile; a browser calls that an error.
        page.on(
            "console",
            lambda entry: (
                self.errors.append(entry.text) if entry.type == "error" and " 404 " not in entry.text else None
            ),
        )

    def _refuse(self, dialog: Dialog) -> None:
        self.errors.append(f"dialog: {dialog.message}")
        dialog.dismiss()

    def second(self) -> Page:
        """Another tab of the same window."""
        page = self.context.new_page()
        self.watch(page)
        return page

    def foreign(self) -> list[str]:
        """Requests that went to another host than the service."""
        own = urlsplit(self.base).netloc
        return [
            url for url in self.requests if urlsplit(url).scheme not in ("data", "blob") and urlsplit(url).netloc != own
        ]

    def refused(self) -> list[str]:
        """What the Content-Security-Policy stopped on the page that is open."""
        found: list[str] = self.page.evaluate("window.__refused || []")
        return found

    def is_clean(self) -> None:
        """Nothing failed, nothing was refused and nothing left the host."""
        assert self.foreign() == []
        assert self.errors == []
        assert self.refused() == []


@contextmanager
def visiting(browser: Browser, base: str, size: tuple[int, int] = WIDE, **options: Any) -> Iterator[Visit]:
    """A window of its own; `options` go to Playwright's new_context (color_scheme, reduced_motion, ...)."""
    context = browser.new_context(viewport={"width": size[0], "height": size[1]}, accept_downloads=True, **options)
    context.add_init_script(_WATCH)
    try:
        visit = Visit(base, context, context.new_page())
        visit.watch(visit.page)
        yield visit
    finally:
        context.close()


def barriers(page: Page) -> list[str]:
    """What axe calls serious or critical on the page, one line each."""
    found = Axe().run(page).response["violations"]
    return [
        f"{item['id']} ({item['impact']}): {item['help']}: {[node['target'] for node in item['nodes']][:3]}"
        for item in found
        if item["impact"] in SERIOUS
    ]


SMALLEST_PX = 12
_SMALL = """(least) => [...document.querySelectorAll('body *')].filter((element) => {
  const box = element.getBoundingClientRect();
  const own = [...element.childNodes].some((node) => node.nodeType === Node.TEXT_NODE && node.textContent.trim());
  return own && box.width > 1 && box.height > 1 && parseFloat(getComputedStyle(element).fontSize) < least;
}).map((element) => `${getComputedStyle(element).fontSize} ${element.textContent.slice(0, 60)}`).slice(0, 5)"""


def small_text(page: Page) -> list[str]:
    """What is written smaller than SMALLEST_PX on the page: size and text."""
    found: list[str] = page.evaluate(_SMALL, SMALLEST_PX)
    return found


VIEWS = ("idea", "code", "diff", "prompt", "compile", "workloads", "timing", "roofline", "profile", "history")


def pages_of(base: str, search: str) -> dict[str, str]:
    """Every page of a service with a search that kept a kernel, by a name for it."""
    found: dict[str, Any] = httpx.get(f"{base}/v1/searches/{search}").json()
    [kernel, *_], node = found["kernels"], found["best"]["node_id"]
    one = f"/searches/{search}"
    return {
        "searches": "/",
        "submit": "/searches/new",
        **{tab: f"{one}?tab={tab}" for tab in ("tree", "list", "progress", "mattered", "story", "spec")},
        **{f"node-{view}": f"{one}?tab=tree&node={node}&view={view}" for view in VIEWS},
        "kernels": "/kernels",
        "kernel": f"/kernels/{kernel}",
        "compare": f"/kernels/compare?a={kernel}&b={kernel}",
        "compare-searches": "/searches/compare",
        "asks": "/asks",
        "system": "/system",
        "about": "/about",
        "nowhere": "/nowhere",
    }
