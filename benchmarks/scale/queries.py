"""The slowest queries of the API's reads, with the plans that PostgreSQL takes for them."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from fastapi.testclient import TestClient
from sqlalchemy import Connection, Engine, event

from warpsmith.service.server.app import create_app
from warpsmith.service.settings import ServiceSettings
from warpsmith.workers.settings import Settings

EXPLAIN = "EXPLAIN (ANALYZE, BUFFERS) "


@dataclass
class Query:
    """A statement as it was sent, its latest parameters, and how long it took each time."""

    statement: str
    parameters: Any
    seconds: list[float]


def find_slowest(settings: Settings, paths: Iterable[str], most: int) -> list[tuple[Query, str]]:
    """Ask an API in this process for each path twice; return the slowest queries by their latest time, with plans."""
    app = create_app(ServiceSettings(home=settings.home, database_url=settings.database_url))
    engine = app.state.service.db.engine
    with TestClient(app, base_url="http://127.0.0.1") as client, recording(engine) as queries:
        for path in paths:
            for _ in range(2):
                client.get(path).raise_for_status()
        found = sorted(queries.values(), key=lambda query: -query.seconds[-1])[:most]
        return [(query, _plan(engine, query)) for query in found]


@contextmanager
def recording(engine: Engine) -> Iterator[dict[str, Query]]:
    """Record the queries of an engine by their text."""
    queries: dict[str, Query] = {}

    def begin(connection: Connection, *_: Any) -> None:
        connection.info["began"] = time.perf_counter()

    def end(connection: Connection, _cursor: Any, statement: str, parameters: Any, *_: Any) -> None:
        query = queries.setdefault(statement, Query(statement, parameters, []))
        query.parameters = parameters
        query.seconds.append(time.perf_counter() - connection.info["began"])

    event.listen(engine, "before_cursor_execute", begin)
    event.listen(engine, "after_cursor_execute", end)
    try:
        yield queries
    finally:
        event.remove(engine, "before_cursor_execute", begin)
        event.remove(engine, "after_cursor_execute", end)


def _plan(engine: Engine, query: Query) -> str:
    if not query.statement.lstrip().upper().startswith("SELECT"):
        return "not a SELECT: not explained"
    with engine.connect() as connection:
        return "\n".join(connection.exec_driver_sql(EXPLAIN + query.statement, query.parameters).scalars())
