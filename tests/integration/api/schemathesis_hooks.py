"""What Schemathesis needs to send lines of JSON, and what of HTTP it does not know."""

from __future__ import annotations

from typing import Any

import schemathesis
from schemathesis.core import NotSet

LINES = "application/x-ndjson"
ANY_TEXT_IS_READ = ("POST /v1/bundles/merge", "POST /v1/pools")
"""Lines are read after the answer, or each by itself: what is wrong with them is told there."""


@schemathesis.serializer(LINES)
def lines(ctx: Any, value: Any) -> bytes:
    """The lines as bytes."""
    return value if isinstance(value, bytes) else str(value).encode("utf-8", "replace")


@schemathesis.hook
def filter_case(context: Any, case: Any) -> bool:
    """Whether a case is on the wire what it was made for.

    HTTP passes over headers that it does not know, and so does the API: to send one is no fault to refuse. A body that
    is no text becomes one when it is sent, and where any text is read line by line, it is no bad body any more.
    """
    if "x-schemathesis-unknown-property" in {name.lower() for name in case.headers or {}}:
        return False
    return case.operation.label not in ANY_TEXT_IS_READ or isinstance(case.body, str | bytes | NotSet)
