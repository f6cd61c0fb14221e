"""What Schemathesis needs to send a pool: JSON lines are text to it."""

from __future__ import annotations

from typing import Any

import schemathesis


@schemathesis.serializer("application/x-ndjson")
def lines(ctx: Any, value: Any) -> bytes:
    """A pool's text as bytes."""
    return value if isinstance(value, bytes) else str(value).encode("utf-8", "replace")
