"""Counting what a database is asked: so that no statement comes in unnoticed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from sqlalchemy import event

from warpsmith.kernels_db.store.db import Database


@contextmanager
def counting(db: Database) -> Iterator[Counter[str]]:
    """Count statements by their first word, and transactions as `transactions`."""
    found: Counter[str] = Counter()

    def count(_connection: Any, _cursor: Any, statement: str, *_: Any) -> None:
        found[statement.split(maxsplit=1)[0]] += 1

    def begin(_connection: Any) -> None:
        found["transactions"] += 1

    event.listen(db.engine, "before_cursor_execute", count)
    event.listen(db.engine, "begin", begin)
    try:
        yield found
    finally:
        event.remove(db.engine, "before_cursor_execute", count)
        event.remove(db.engine, "begin", begin)
