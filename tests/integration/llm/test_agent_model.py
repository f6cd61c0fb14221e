"""The `agent` provider over real databases: it waits for its own ask, and takes no other answer."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
from sqlalchemy import update

from tests.services import DATABASES, MIGRATED
from tests.support.model_rows import REQUEST, add_search, migrated
from warpsmith.kernels_db.store.db import Database
from warpsmith.kernels_db.store.tables import AskRow
from warpsmith.workers.llm import AskPending, Model
from warpsmith.workers.llm.providers.factory import open_model
from warpsmith.workers.settings import Settings


@pytest.fixture(params=DATABASES)
def db(request: pytest.FixtureRequest) -> Iterator[Database]:
    url: str = request.getfixturevalue(MIGRATED[request.param])
    with migrated(url) as database:
        add_search(database)
        yield database


@pytest.fixture
def model(db: Database) -> Model:
    return open_model({"provider": "agent"}, Settings(_env_file=None), db)


def ask(db: Database, ordinal: int = 0) -> None:
    with db.writing() as session:
        session.add(
            AskRow(
                id=f"ak_{ordinal}",
                search_id="sr_1",
                node_id="nd_1",
                attempt_id="at_1",
                kind="code",
                request=REQUEST.identity,
                ordinal=ordinal,
                messages=list(REQUEST.messages),
                state="open",
                created_at=100.0,
            )
        )


def tell(db: Database, reply: str, ordinal: int = 0, state: str = "answered") -> None:
    with db.writing() as session:
        session.execute(
            update(AskRow)
            .where(AskRow.id == f"ak_{ordinal}")
            .values(state=state, reply=reply, answered_by="ada", answered_at=107.5)
        )


def test_without_an_ask_or_an_answer_it_is_pending(db: Database, model: Model) -> None:
    with pytest.raises(AskPending, match="nobody has answered yet: code 'One pass'"):
        model.complete(REQUEST)
    ask(db)
    with pytest.raises(AskPending):
        model.complete(REQUEST)


def test_an_answer_is_the_reply(db: Database, model: Model) -> None:
    ask(db)
    tell(db, "```python\n...\n```")
    reply = model.complete(REQUEST)
    assert model.provider == "agent"
    assert (reply.text, reply.model, reply.finish_reason) == ("```python\n...\n```", "ada", "stop")
    prompt = sum(len(message["content"]) for message in REQUEST.messages)
    assert (reply.prompt_tokens, reply.completion_tokens, reply.cost_usd) == (-(-prompt // 4), 5, 0.0)
    assert reply.latency_s == 7.5
    assert model.complete(REQUEST) == reply  # asking again after a crash gives the same


@pytest.mark.parametrize("change", [{"ordinal": 1}, {"identity": "f" * 64}, {"attempt_id": "at_2"}])
def test_an_answer_to_something_else_is_not_taken(db: Database, model: Model, change: dict[str, str]) -> None:
    ask(db)
    tell(db, "answer")
    with pytest.raises(AskPending):
        model.complete(replace(REQUEST, **change))  # type: ignore[arg-type]


def test_a_withdrawn_ask_is_not_an_answer(db: Database, model: Model) -> None:
    ask(db)
    tell(db, "too late", state="withdrawn")
    with pytest.raises(AskPending):
        model.complete(REQUEST)


def test_a_re_ask_has_its_own_answer(db: Database, model: Model) -> None:
    for ordinal in (0, 1):
        ask(db, ordinal)
        tell(db, f"answer {ordinal}", ordinal)
    assert model.complete(replace(REQUEST, ordinal=1)).text == "answer 1"
