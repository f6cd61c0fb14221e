"""The upgrade to labels: older searches get the names of their models, as far as their rows tell them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import select, text

from warpsmith.kernels_db.store.db import Database
from warpsmith.kernels_db.store.tables import SearchRow

MODELS = {
    "sr_one": ({"provider": "openai", "model": "gpt-5"}, "gpt-5"),
    "sr_two": ({"provider": "openai", "models": [{"model": "a"}, {"model": "b"}, {"model": "a"}]}, "a, b"),
    "sr_default": ({"provider": "openai"}, None),
    "sr_replay": ({"provider": "replay", "pool": "pl"}, "claude"),
    "sr_agent": ({"provider": "agent"}, None),
}


@pytest.fixture(params=["sqlite", "postgresql"])
def upgraded(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Database]:
    """A database of revision 0015 with searches of these models, upgraded."""
    file = f"sqlite:///{tmp_path / 'test.db'}"
    database = Database(file if request.param == "sqlite" else str(request.getfixturevalue("postgres_url")))
    database.upgrade("0015")
    with database.engine.begin() as connection:
        connection.execute(
            text("INSERT INTO ops (id, name, digest, spec, created_at) VALUES ('op', 'a', 'a', '{}', 0)")
        )
        header = json.dumps({"answered_by": "claude"})
        pool = "INSERT INTO pools (id, digest, header, replies, created_at) VALUES ('pl', 'p', :header, 0, 0)"
        connection.execute(text(pool), {"header": header})
        search = (
            "INSERT INTO searches (id, op_id, target, language, policy, budget, model, state, round, next_seq,"
            " candidates, model_calls, tokens, cost_usd, active_s, created_at, updated_at)"
            " VALUES (:id, 'op', 'cpu:x86_64', 'cpp', '{}', '{}', :model, 'finished', 0, 1, 0, 0, 0, 0, 0, 0, 0)"
        )
        for search_id, (model, _) in MODELS.items():
            connection.execute(text(search), {"id": search_id, "model": json.dumps(model)})
    database.upgrade()
    yield database
    database.dispose()


def test_models_of_older_searches_are_named(upgraded: Database) -> None:
    with upgraded.reading() as session:
        named = dict(session.execute(select(SearchRow.id, SearchRow.model_name)).tuples().all())
    assert named == {search_id: name for search_id, (_, name) in MODELS.items()}
