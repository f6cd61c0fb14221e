"""The progress of a search, followed on a terminal."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from typing import Any

from rich.live import Live

from warpsmith.service.cli.output import say, stderr
from warpsmith.service.client.http import Client
from warpsmith.service.client.narrator import Narrator
from warpsmith.service.client.progress import build_progress_panel, needs_person
from warpsmith.service.documents.searches import SearchDocument

REFRESH_S = 0.5
EVENTS_SHOWN = 8


def follow(client: Client, search: SearchDocument, *, quiet: bool = False) -> SearchDocument:
    """Show a search's progress on standard error until it ends or pauses.

    A terminal gets a live panel, anything else one line for each event.
    """
    if quiet:
        return watch(client, search, lambda *_: None)
    if not stderr.is_terminal:
        say(f"search {search.id}: {search.op_name} on {search.target}")
        return watch(client, search, lambda _, line: say(line) if line else None)
    state = {"search": search}
    recent: deque[str] = deque(maxlen=EVENTS_SHOWN)

    def show(current: SearchDocument, line: str | None) -> None:
        state["search"] = current
        if line:
            recent.append(line)

    def panel() -> Any:
        return build_progress_panel(state["search"], list(recent), time.time())

    with Live(get_renderable=panel, console=stderr, refresh_per_second=4, transient=False):
        return watch(client, search, show)


def watch(client: Client, search: SearchDocument, show: Callable[[SearchDocument, str | None], None]) -> SearchDocument:
    """Call `show` with the search and each event's line; return the search at its end or pause."""
    narrator = Narrator()
    current, refreshed = search, time.monotonic()
    for event in client.follow(search.id):
        if time.monotonic() - refreshed > REFRESH_S:
            current, refreshed = client.search(search.id), time.monotonic()
        show(current, narrator.line(event))
        if event.type == "search.paused" and needs_person(client.search(search.id)):
            break
    final = client.search(search.id)
    show(final, None)
    return final
