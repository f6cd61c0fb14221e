"""Ids of rows. A kernel that is judged without a database gets one too, so this module needs none."""

from __future__ import annotations

import re
import secrets
import threading
import time

_CROCKFORD = "0123456789abcdefghjkmnpqrstvwxyz"
_ID = re.compile(r"[a-z]{2}_[0-9A-Za-z]{1,29}")
_PAIRS = tuple(first + second for first in _CROCKFORD for second in _CROCKFORD)


class _Ids:
    """ULIDs (https://github.com/ulid/spec): 48 bits of milliseconds and 80 random bits.

    They count up when they must.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._last = 0

    def next(self) -> int:
        with self._lock:
            fresh = (time.time_ns() // 1_000_000) << 80 | secrets.randbits(79)
            self._last = max(fresh, self._last + 1)
            return self._last


_ids = _Ids()


def new_id(prefix: str) -> str:
    """Return a new id, `prefix` and 26 characters.

    The ids of one process rise, those of several sort by the millisecond.
    """
    value = _ids.next()
    return f"{prefix}_" + "".join([_PAIRS[value >> shift & 1023] for shift in range(120, -1, -10)])


def is_id(text: str) -> bool:
    """Check whether `text` could be an id. Other text may hold characters that a database refuses."""
    return _ID.fullmatch(text) is not None
