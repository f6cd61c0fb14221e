"""Recent answers that are costly to make: one is made at a time, and whoever asks meanwhile gets the same."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field

KEPT_S = 15.0
"""An answer is given again for so long, though what it tells of has changed since."""

MOST_KEPT = 32


@dataclass
class _Entry:
    making: threading.Lock = field(default_factory=threading.Lock)
    users: int = 0
    body: bytes | None = None
    stamp: Hashable = None
    made_at: float = 0.0


class RecentAnswers:
    """The latest answer for each key, at most MOST_KEPT beside those that are asked for at the moment."""

    def __init__(self) -> None:
        self._entries: OrderedDict[Hashable, _Entry] = OrderedDict()
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._entries)

    def get_or_make(self, key: Hashable, stamp: Hashable, make: Callable[[], bytes]) -> bytes:
        """Return the answer for `key`: the kept one if it is of `stamp` or younger than KEPT_S, else one made now.

        Callers of one key wait for the one that makes it; hold no connection meanwhile. What `make` raises goes to its
        caller alone, and the next one tries again.
        """
        with self._lock:
            entry = self._entries.setdefault(key, _Entry())
            self._entries.move_to_end(key)
            entry.users += 1
        try:
            with entry.making:
                body = entry.body
                if body is None or (entry.stamp != stamp and time.monotonic() - entry.made_at >= KEPT_S):
                    body = make()
                    entry.body, entry.stamp, entry.made_at = body, stamp, time.monotonic()
                return body
        finally:
            with self._lock:
                entry.users -= 1
                unused = [old for old, one in self._entries.items() if one.users == 0]
                for old in unused[: max(0, len(self._entries) - MOST_KEPT)]:
                    del self._entries[old]
