"""What every tool works with."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path

from warpsmith.service.client.errors import misuse
from warpsmith.service.client.http import Client

caller_key: ContextVar[str | None] = ContextVar("caller_key", default=None)
"""The API key of whoever calls over HTTP, for the length of the call."""


@dataclass(frozen=True)
class Desk:
    """The service, and what a caller may have done on this machine.

    url: finds the service, anew for every call: it may be started later, or again on another port. key: the API key
    of a server that one agent alone talks to; None where every caller brings their own. exports: the directory below
    which packages may be written; None: anywhere.
    """

    url: Callable[[], str]
    key: str | None = None
    exports: Path | None = None
    judging: threading.Lock = field(default_factory=threading.Lock)

    def client(self) -> Client:
        """A client of the service, to be used as a context manager; one for every call."""
        return Client(self.url(), self.key if self.key is not None else caller_key.get())

    def export_directory(self, directory: str) -> Path:
        """Where a package may be written; ends with misuse where it may not."""
        root = self.exports
        path = Path(directory).expanduser()
        path = (path if root is None else root / path).resolve()
        if root is not None and not path.is_relative_to(root.resolve()):
            misuse("directory", directory, f"a directory below {root}, where this server writes exports")
        return path
