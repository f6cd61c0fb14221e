"""Server-sent events of a search: the rows of the events table, in order, after a given id.

A stream is a loop of short read transactions in worker threads; between them it holds no connection and no thread. It
ends once the search has ended and its last event is out, when the key that opened it is revoked, or after
`stream_life_s`; a client resumes with the id of the last event that it saw.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass

from fastapi.sse import KEEPALIVE_COMMENT, format_sse_event
from sqlalchemy import select
from starlette.concurrency import run_in_threadpool

from warpsmith.kernels_db.store.db import Database
from warpsmith.kernels_db.store.tables import ApiKeyRow, EventRow, SearchRow
from warpsmith.service.documents.problems import TooManyStreams
from warpsmith.service.settings import ServiceSettings
from warpsmith.service.views.searches import make_event_document
from warpsmith.workers.search.tree import ENDED

BATCH = 200


@dataclass(frozen=True)
class Batch:
    """Events after some id; `ended`: the search has ended, and there are no more."""

    events: Sequence[EventRow]
    ended: bool


def read_batch(
    db: Database, search_id: str, after: int, limit: int = BATCH, key_prefix: str | None = None
) -> Batch | None:
    """Read the events after id `after`, oldest first; None for an unknown search, and for a key that is revoked.

    State and events are read in one transaction, so a search seen as ended has all its events visible.
    """
    with db.reading() as session:
        key = None if key_prefix is None else session.get(ApiKeyRow, key_prefix)
        if key is not None and key.revoked_at is not None:
            return None
        state = session.scalar(select(SearchRow.state).where(SearchRow.id == search_id))
        if state is None:
            return None
        query = (
            select(EventRow)
            .where(EventRow.search_id == search_id, EventRow.id > after)
            .order_by(EventRow.id)
            .limit(limit)
        )
        events = session.scalars(query).all()
        return Batch(events, ended=state in ENDED and len(events) < limit)


class Streams:
    """Opens event streams, at most `max_streams` at once."""

    def __init__(self, db: Database, settings: ServiceSettings) -> None:
        self._db = db
        self._settings = settings
        self._open = 0

    def check(self) -> None:
        """Raise TooManyStreams where no more streams can be served."""
        if self._open >= self._settings.max_streams:
            raise TooManyStreams(
                f"streams: found {self._open} open, expected below {self._settings.max_streams}; ask with ?format=json",
                headers={"Retry-After": "5"},
            )

    async def events(self, search_id: str, after: int, key_prefix: str | None = None) -> AsyncIterator[bytes]:
        """Yield the stream's bytes, until the key of who asked is revoked: only its start goes through the door."""
        settings = self._settings
        self._open += 1
        try:
            started = spoke = time.monotonic()
            # Says how soon to come back, and tells a client behind a buffering proxy that the stream is open.
            yield format_sse_event(retry=2000)
            while time.monotonic() - started < settings.stream_life_s:
                batch = await run_in_threadpool(read_batch, self._db, search_id, after, BATCH, key_prefix)
                if batch is None:
                    return
                for row in batch.events:
                    after = row.id
                    data = make_event_document(row).model_dump(mode="json")
                    yield format_sse_event(data_str=json.dumps(data, ensure_ascii=True), event=row.type, id=str(row.id))
                if batch.ended:
                    return
                now = time.monotonic()
                if batch.events:
                    spoke = now
                elif now - spoke >= settings.stream_heartbeat_s:
                    spoke = now
                    yield KEEPALIVE_COMMENT
                if len(batch.events) < BATCH:
                    await asyncio.sleep(settings.stream_poll_s)
        finally:
            self._open -= 1
