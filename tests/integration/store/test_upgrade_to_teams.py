"""The upgrade to teams: what was stored before is the default team's, and keys do what they did."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import select, text
from sqlalchemy.exc import DatabaseError

from warpsmith.kernels_db.store.db import Database
from warpsmith.kernels_db.store.tables import HoldingRow, IdempotencyRow, KernelRow, SearchRow, TeamRow
from warpsmith.service.api import auth

DIGEST = hashlib.sha256(b"s").hexdigest()
KERNEL = (
    "INSERT INTO kernels (id, op_id, target, search_id, language, source, source_digest, score, ci_low, ci_high,"
    " envelope, evidence, lineage, created_at)"
    " VALUES ('{id}', '{op}', 'cpu:x86_64', {search}, 'cpp', '', 'd', 2, 1, 3, '{{}}', '{{}}', '[]', 0)"
)
ROWS = [
    "INSERT INTO ops (id, name, digest, spec, created_at) VALUES ('op_a', 'a', 'a', '{}', 0)",
    "INSERT INTO ops (id, name, digest, spec, created_at) VALUES ('op_b', 'b', 'b', '{}', 0)",
    "INSERT INTO searches (id, op_id, target, language, policy, budget, model, state, round, next_seq, candidates,"
    " model_calls, tokens, cost_usd, active_s, created_at, updated_at)"
    " VALUES ('sr', 'op_a', 'cpu:x86_64', 'cpp', '{}', '{}', '{}', 'running', 0, 1, 0, 0, 0, 0, 0, 0, 0)",
    KERNEL.format(id="kn_a", op="op_a", search="'sr'"),
    KERNEL.format(id="kn_b", op="op_b", search="NULL"),
    "INSERT INTO pools (id, digest, header, replies, created_at) VALUES ('pl', 'p', '{}', 0, 0)",
    f"INSERT INTO api_keys (prefix, digest, name, created_at) VALUES ('a1', '{DIGEST}', 'k', 0)",
    "INSERT INTO idempotency_keys (key, path, body_digest, status, headers, response, created_at)"
    " VALUES ('once', '/v1/ops', 'd', 201, '{}', '{}', 0)",
]


@pytest.fixture(params=["sqlite", "postgresql"])
def upgraded(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Database]:
    """A database of revision 0007 with `ROWS`, upgraded."""
    file = f"sqlite:///{tmp_path / 'test.db'}"
    database = Database(file if request.param == "sqlite" else str(request.getfixturevalue("postgres_url")))
    database.upgrade("0007")
    with database.engine.begin() as connection:
        for row in ROWS:
            connection.execute(text(row))
    database.upgrade()
    yield database
    database.dispose()


def test_what_was_stored_is_the_default_teams(upgraded: Database) -> None:
    with upgraded.reading() as session:
        [team] = session.scalars(select(TeamRow))
        assert (team.name, team.visibility, team.open_searches, team.cost_usd_a_day) == (
            "default",
            "shared",
            None,
            None,
        )
        assert session.get_one(SearchRow, "sr").team == "default"
        assert [session.get_one(KernelRow, name).team for name in ("kn_a", "kn_b")] == ["default", ""]
        held = session.execute(select(HoldingRow.object_id, HoldingRow.team).order_by(HoldingRow.object_id))
        assert held.tuples().all() == [("op_a", "default"), ("pl", "default")]
        assert session.get_one(IdempotencyRow, ("default", "once", "/v1/ops")).status == 201
    row = auth.valid_key(upgraded, "wsk_a1_s")
    assert row is not None
    caller = auth.identify(row)
    assert (caller.team, sorted(caller.scopes)) == ("default", ["read", "steer", "submit"])


def test_the_audit_log_is_append_only(upgraded: Database) -> None:
    with upgraded.engine.begin() as connection:
        connection.execute(
            text("INSERT INTO audit (created_at, action, source, result) VALUES (0, 'a', 'here', 'done')")
        )
    with pytest.raises(DatabaseError, match="append-only"), upgraded.engine.begin() as connection:
        connection.execute(text("UPDATE audit SET result = '404'"))
