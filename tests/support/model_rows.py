"""A database with one search, its root, one attempt and a pool: what the replay and agent providers read."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from tests.services import migrate
from warpsmith.kernels_db.store.db import Database
from warpsmith.kernels_db.store.pool_file import Pool
from warpsmith.kernels_db.store.tables import AttemptRow, NodeRow, OpRow, PoolReplyRow, PoolRow, SearchRow
from warpsmith.workers.llm.base import ModelRequest

REQUEST = ModelRequest(
    kind="code",
    identity="e" * 64,
    ordinal=0,
    messages=({"role": "user", "content": "write"},),
    summary="code 'One pass' (fusion), variant 0",
    attempt_id="at_1",
)


@contextmanager
def migrated(url: str) -> Iterator[Database]:
    """A database at the present revision."""
    database = Database(url)
    try:
        migrate(database)
        yield database
    finally:
        database.dispose()


def add_search(db: Database) -> None:
    """A running search with its root and the attempt that `REQUEST` belongs to."""
    with db.writing() as session:
        session.add(OpRow(id="op_1", name="layer_norm", digest="a" * 64, spec={}, created_at=1.0))
        session.flush()
        session.add(
            SearchRow(
                id="sr_1",
                op_id="op_1",
                target="cpu:x86_64",
                language="cpp",
                policy={},
                budget={},
                model={"provider": "agent"},
                state="running",
                created_at=1.0,
                updated_at=1.0,
            )
        )
        session.flush()
        session.add(
            NodeRow(id="nd_1", search_id="sr_1", seq=0, round=0, state="judged", created_at=1.0, updated_at=1.0)
        )
        session.flush()
        session.add(
            AttemptRow(
                id="at_1",
                search_id="sr_1",
                node_id="nd_1",
                kind="ideate",
                ordinal=0,
                params={},
                state="running",
                created_at=1.0,
            )
        )


def add_pool(db: Database, pool: Pool) -> str:
    """Store `pool`; returns its id."""
    with db.writing() as session:
        session.add(
            PoolRow(
                id="pl_1", digest=pool.digest, header=pool.header.document(), replies=len(pool.replies), created_at=1.0
            )
        )
        session.flush()
        session.add_all(
            PoolReplyRow(pool_id="pl_1", request=reply.request, ordinal=reply.ordinal, reply=reply.document())
            for reply in pool.replies
        )
    return "pl_1"
