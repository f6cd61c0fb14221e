"""Following a search on a terminal."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from typing import Any

from rich.live import Live

from warpsmith.service.cli.output import say, stderr
from warpsmith.service.client.http import Client
from warpsmith.service.client.narrator import Narrator
from warpsmith.service.client.progress import progress_panel
from warpsmith.service.documents.searches import SearchDocument

REFRESH_S = 0.5
HAPPENINGS_SHOWN = 8


def follow(client: Client, search: SearchDocument, *, quiet: bool = False) -> SearchDocument:
    """Show a search's progress on standard error until it ends or pauses; lines where that is no terminal."""
    if quiet:
        return watch(client, search, lambda *_: None)
    if not stderr.is_terminal:
        say(f"search {search.id}: {search.op_name} on {search.target}")
        return watch(client, search, lambda _, line: say(line) if line else None)
    state = {"search": search}
    happenings: deque[str] = deque(maxlen=HAPPENINGS_SHOWN)

    def show(current: SearchDocument, line: str | None) -> None:
        state["search"] = current
        if line:
            happenings.append(line)

    def panel() -> Any:
        return progress_panel(state["search"], list(happenings), time.time())

    with Live(get_renderable=panel, console=stderr, refresh_per_second=4, transient=False):
        return watch(client, search, show)


def _is_left_to_us(search: SearchDocument) -> bool:
    """Whether the search is paused until somebody resumes it; after an outage of the model it goes on by itself."""
    return search.state == "paused" and any(item.what == "person" for item in search.waiting_for)


def watch(client: Client, search: SearchDocument, show: Callable[[SearchDocument, str | None], None]) -> SearchDocument:
    """Call `show` with the search and a line for each event, until it ends or pauses; return it as it is then."""
    narrator = Narrator()
    current, refreshed = search, time.monotonic()
    for event in client.follow(search.id):
        if time.monotonic() - refreshed > REFRESH_S:
            current, refreshed = client.search(search.id), time.monotonic()
        show(current, narrator.line(event))
        if event.type == "search.paused" and _is_left_to_us(client.search(search.id)):
            break
    final = client.search(search.id)
    show(final, None)
    return final
