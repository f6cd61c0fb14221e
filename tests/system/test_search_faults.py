"""What a search makes of bad models and tight budgets: it ends, says why, and has counted what it spent."""

from __future__ import annotations

import itertools
import json
import re
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import column as column_of
from sqlalchemy import create_engine, inspect, select, text
from sqlalchemy import table as table_of

from tests.model_server import Answer, ModelServer, Request, ok, raw
from tests.support import played as support
from tests.support.played import Played, all_wrong, by_digest, kind_of
from tests.support.scenario import LOOP, OP, candidate
from warpsmith.kernels_db.spec.op import load_op
from warpsmith.kernels_db.store.db import Database
from warpsmith.kernels_db.store.tables import METADATA, NodeRow, SearchRow
from warpsmith.workers import steps

POLICY = {
    "name": "idea_beam",
    "beam": 2,
    "diverse": 1,
    "ideas": 2,
    "codes": 1,
    "repairs": 1,
    "rounds": 2,
    "max_rounds": 2,
    "improvement": 0.02,
    "flat_rounds": 2,
    "restart": True,
    "stop_fraction": 0.95,
}
"""Spelled out as it stood in the first schema's searches: it must still be read."""

Begin = Callable[..., Played]


def ideas(*titles: str) -> str:
    """A readable reply with ideas."""
    return json.dumps(
        [{"technique": "compute", "title": title, "mechanism": f"It works by {title}."} for title in titles]
    )


def source(number: int) -> str:
    """A readable reply with a candidate like no other."""
    return f"```python\n{candidate(LOOP.replace('2.0f', f'2.0f * {number}.0f'))}```"


class Inventive:
    """Answers every request with something new."""

    def __init__(self) -> None:
        self._numbers = itertools.count(1)
        self._lock = threading.Lock()

    def __call__(self, request: Request) -> Answer:
        with self._lock:
            number = next(self._numbers)
        if kind_of(request) == "ideate":
            return ok(ideas(f"way {number}", f"other way {number}"))
        return ok(source(number))


@pytest.fixture
def begin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Begin]:
    """Begins a search at a model server."""
    begun: list[Played] = []

    def start(server: ModelServer, **changes: Any) -> Played:
        values = {"policy": POLICY, **changes}
        begun.append(Played.begin(tmp_path, server.url, monkeypatch, load_op(OP), **values))
        return begun[-1]

    yield start
    for played in begun:
        played.close()


def test_a_model_that_only_writes_wrong_code_ends_at_its_budget_with_that_reason(begin: Begin) -> None:
    with ModelServer(default=Inventive()) as server:
        played = begin(server, budget={"candidates": 6}, policy={**POLICY, "rounds": 50, "max_rounds": 50})
        search = played.run(all_wrong)
    assert (search.state, search.candidates) == ("finished", 6)
    assert search.reason == "the budget is used up: candidates 6 of 6; no candidate was right: 6 rejected"
    assert search.best_node_id is None
    assert search.model_calls == len(played.calls()) == len(server.requests)


def test_a_model_that_repeats_itself_is_paid_for_and_judged_once(begin: Begin) -> None:
    def answer(request: Request) -> Answer:
        return ok(ideas("the one way", "the other way") if kind_of(request) == "ideate" else source(1))

    with ModelServer(default=answer) as server:
        played = begin(server)
        search = played.run(by_digest)
    assert search.state == "finished"
    nodes = played.nodes()
    assert [node.reason for node in nodes if node.state == "closed"], "duplicates are closed"
    assert all(re.search("duplicate of node|same idea", node.reason or "") for node in nodes[1:])
    assert [node.verdict for node in nodes if node.verdict] == ["accepted"]
    assert search.candidates == sum(node.source is not None for node in nodes)
    assert search.model_calls == len(server.requests)
    assert nodes[0].id == search.best_node_id


def test_a_reply_of_a_megabyte_is_asked_for_again_and_held(begin: Begin) -> None:
    long, plain = "All work and no play. " * 50_000, Inventive()

    def answer(request: Request) -> Answer:
        first = len(request.body["messages"]) == 2
        if kind_of(request) == "code" and first:
            return ok(long)
        if kind_of(request) == "ideate" and first:
            return ok(long + ideas("hidden"))
        return plain(request)

    with ModelServer(default=answer) as server:
        played = begin(server, budget={"candidates": 2})
        search = played.run(by_digest)
    assert (search.state, search.candidates) == ("finished", 2)
    assert search.best_node_id is not None
    largest = max(len(json.dumps(request.body)) for request in server.requests)
    assert largest < 100_000, "what could not be read is told back in short"


def test_a_reply_beyond_every_limit_pauses_the_search(begin: Begin) -> None:
    with ModelServer([raw(b" " * (17 * 2**20))]) as server:
        played = begin(server)
        for _ in range(10):
            search = played.run(by_digest)
            if search.state == "paused":
                break
            with played.here.db.writing() as session:
                session.execute(text("UPDATE attempts SET not_before = 0"))
    assert search.state == "paused"
    assert "more than 16777216 bytes" in (search.reason or "")


def test_a_price_table_without_the_model_leaves_the_cost_unknown_and_the_cap_on_tokens_holds(begin: Begin) -> None:
    plain = Inventive()

    def answer(request: Request) -> Answer:
        return Answer(body=plain(request).body.replace(b"gpt-5-2025-08-07", b"local-7b"))

    with ModelServer(default=answer) as server:
        played = begin(server, model={"provider": "openai", "model": "local-7b"}, budget={"tokens": 5000})
        search = played.run(by_digest)
    assert {call.cost_usd for call in played.calls()} == {None}
    assert search.state == "finished"
    assert search.reason is not None
    assert search.reason.startswith("the budget is used up: tokens 6000 of 5000")
    assert search.tokens < 5000 + 1500, "the last call began below the cap"


@pytest.mark.parametrize(("limit", "value", "of_a_call"), [("model_calls", 5, 0), ("cost_usd", 0.03, 0.0062)])
def test_caps_survive_a_pause_and_a_restart(
    begin: Begin, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: str, value: float, of_a_call: float
) -> None:
    with ModelServer(default=Inventive()) as server:
        first = begin(server, budget={limit: value}, policy={**POLICY, "rounds": 50, "max_rounds": 50})
        first.run(by_digest, turns=2)
        steps.pause(first.here.db, first.search_id, "on request", 0.0)
        first.close()
        again = Played.take_up(tmp_path, server.url, monkeypatch, first.search_id)
        steps.resume(again.here.db, again.search_id, 0.0)
        search = again.run(by_digest)
        again.close()
    assert search.state == "finished"
    assert value <= getattr(search, limit) <= value + of_a_call
    assert search.model_calls == len(server.requests)


def test_calls_that_were_under_way_are_all_that_goes_beyond_a_cap(begin: Begin) -> None:
    with ModelServer(default=Inventive()) as server:
        played = begin(server, budget={"tokens": 4000}, policy={**POLICY, "ideas": 8, "rounds": 50, "max_rounds": 50})
        played.run(by_digest, turns=1)
        db, now = played.here.db, 0.0
        works = [
            steps.claim(db, attempt_id, "me", 1e9, 2e9)
            for attempt_id in support.pending(db, played.search_id, ("code",))
        ]
    first, second = works[0], works[1]
    assert first is not None
    assert second is not None
    spent = [steps.ModelCall("code", "0" * 64, 0, "openai", (), reply="r", prompt_tokens=1000, completion_tokens=500)]
    assert steps.refusal(db, first, now) is None
    assert steps.refusal(db, first, now, spent) is None, "1500 were spent, and 1500 are the step's own"
    assert steps.refusal(db, first, now, spent * 2) == "the budget is used up: tokens 4500 of 4000"
    assert steps.complete_code(db, first.attempt_id, "me", "def run(x, y): ...", "cpp", spent * 2, now)
    assert steps.refusal(db, second, now) == "the budget is used up: tokens 4500 of 4000"


def test_a_search_of_the_first_schema_is_upgraded_and_finished(
    begin: Begin, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with ModelServer(default=Inventive()) as server:
        half = begin(server, budget={"candidates": 4})
        half.run(by_digest, turns=3)
        before = half.search()
        assert before.state == "running"
        old = tmp_path / "old"
        copied(half.here.db, f"sqlite:///{old / 'warpsmith.db'}")
        with (
            pytest.raises(Exception, match="gpu_seconds"),
            Database(f"sqlite:///{old / 'warpsmith.db'}").reading() as s,
        ):
            s.get_one(SearchRow, half.search_id)
        upgraded = Played.take_up(old, server.url, monkeypatch, half.search_id)
        upgraded.here.db.upgrade()
        with upgraded.here.db.reading() as session:
            kept = session.get_one(SearchRow, half.search_id)
            assert (kept.candidates, kept.model_calls, kept.gpu_seconds) == (before.candidates, before.model_calls, 0.0)
            assert set(session.scalars(select(NodeRow.origin))) == {"model"}
        search = upgraded.run(by_digest)
        upgraded.close()
    assert (search.state, search.candidates) == ("finished", 4)
    assert search.best_node_id is not None
    assert search.model_calls > before.model_calls


def copied(head: Database, url: str) -> None:
    """The rows of `head` in a new database of the first schema, without the columns that came later."""
    old = Database(url)
    old.upgrade("0001")
    old.dispose()
    engine = create_engine(url)
    columns = {
        name: {column["name"] for column in inspect(engine).get_columns(name)}
        for name in inspect(engine).get_table_names()
    }
    with head.reading() as session, engine.begin() as connection:
        for table in METADATA.sorted_tables:
            names = [column for column in table.columns if column.name in columns.get(table.name, set())]
            for row in session.execute(select(*names)) if names else ():
                # A table without the defaults of today's columns.
                plain = table_of(table.name, *(column_of(column.name, column.type) for column in names))
                values = {column.name: value for column, value in zip(names, row, strict=True)}
                connection.execute(plain.insert().values(values))
    engine.dispose()
