"""Errors of a client and of a command, and exit codes; quicker to load than the client."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NoReturn

from warpsmith.kernels_db.spec.errors import placed

DONE, FAILED, MISUSE = 0, 1, 2
"""Exit codes of commands."""


class ServiceUnreachableError(RuntimeError):
    """Nothing answers at the URL, or nothing that can be trusted."""

    def __init__(self, url: str, error: Exception) -> None:
        if "CERTIFICATE_VERIFY_FAILED" in str(error):
            super().__init__(
                f"url: found {url}, whose certificate does not hold here ({error}); expected one of an authority "
                "that is known: SSL_CERT_FILE names the PEM file of your own"
            )
            return
        super().__init__(
            f"url: found {url}, where nothing answers ({error}); expected a running service: "
            "start one with `warpsmith up`, or name another with --url or WARPSMITH_URL"
        )


class NoServiceOnHomeError(ServiceUnreachableError):
    """No service runs on the home that was named; the one at the default address is another home's."""

    def __init__(self, home: Path) -> None:
        RuntimeError.__init__(
            self,
            f"WARPSMITH_HOME: found {home}, on which no service runs; expected a running service: start one with "
            "`warpsmith up`, or name another with --url or WARPSMITH_URL",
        )


class ProblemError(RuntimeError):
    """The service refused a request; `document` is its problem+json."""

    def __init__(self, status: int, document: dict[str, Any]) -> None:
        self.status = status
        self.document = document
        super().__init__(describe_problem(status, document))


def describe_problem(status: int, document: dict[str, Any]) -> str:
    """Describe a problem+json document: one line for each bad field."""
    lines = [
        f"{placed(str(item.get('field')), item.get('line'))}: found {json.dumps(item.get('found'))}, "
        f"expected {item.get('expected')}"
        for item in document.get("errors") or []
    ]
    if lines:
        return "\n".join(lines)
    title = document.get("title") or f"HTTP {status}"
    detail = document.get("detail")
    return f"{title}: {detail}" if detail else str(title)


class CommandError(Exception):
    """Ends a command with a message and an exit code; `--json` prints `document` as well."""

    def __init__(self, message: str, code: int = FAILED, document: dict[str, Any] | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.document = document or {}


def misuse(field: str, found: object, expected: str) -> NoReturn:
    """End with exit code 2, naming the bad argument."""
    error = {"field": field, "found": found, "expected": expected}
    raise CommandError(f"{field}: found {found!r}, expected {expected}", MISUSE, {"errors": [error]})
