"""Context of the tools: the service, the caller's key, and the directory for exports."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path

from warpsmith.service.client.errors import misuse
from warpsmith.service.client.http import Client
from warpsmith.service.local.judging import KeptJudge

caller_key: ContextVar[str | None] = ContextVar("caller_key", default=None)
"""The API key of an HTTP caller, for the length of the call."""


@dataclass(frozen=True)
class Desk:
    """The service, and the limits of a caller on this machine.

    url: finds the service for every call: it may be started later, or again on another port. key: the API key of a
    server for one agent alone; None where every caller sends their own. exports: the directory below which packages
    may be written; None: anywhere. judge: of this machine, kept between calls; it takes one candidate at a time.
    """

    url: Callable[[], str]
    key: str | None = None
    exports: Path | None = None
    judge: KeptJudge = field(default_factory=KeptJudge)

    def client(self) -> Client:
        """Make a client of the service for one call, to be used as a context manager."""
        return Client(self.url(), self.key if self.key is not None else caller_key.get())

    def check_export_directory(self, directory: str) -> Path:
        """Return the path that a package may be written to; ends with misuse where it may not."""
        root = self.exports
        path = Path(directory).expanduser()
        path = (path if root is None else root / path).resolve()
        if root is not None and not path.is_relative_to(root.resolve()):
            misuse("directory", directory, f"a directory below {root}, where this server writes exports")
        return path
