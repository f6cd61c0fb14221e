"""Tell on standard error how far an import has come, while a command waits for it."""

from __future__ import annotations

import time

from warpsmith.service.cli.output import say
from warpsmith.service.documents.imports import ImportDocument

EVERY_S = 2.0
"""Seconds between two lines; an import that takes less has none."""


def describe_state(found: ImportDocument) -> str:
    """Describe the state of an import in a few words."""
    if found.state == "pending":
        return "waits for a model worker" + (f", tried {found.tries} times" if found.tries else "")
    if found.state == "running":
        words = {"reading": "is read", "running": "is run in the sandbox", "storing": "is stored", None: "is read"}
        return words[found.stage] + (f", line {found.done} of {found.total}" if found.total and found.done else "")
    return found.state


class ImportProgress:
    """What `Client.import_pool` calls: prints a line every few seconds."""

    def __init__(self) -> None:
        self._told_at = time.monotonic()

    def __call__(self, found: ImportDocument) -> None:
        if time.monotonic() - self._told_at >= EVERY_S:
            self._told_at = time.monotonic()
            say(f"{found.id} {describe_state(found)}")
