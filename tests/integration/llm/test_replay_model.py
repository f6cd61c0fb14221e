"""The `replay` provider over real databases: the recorded reply, or a miss that names the request."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from tests.services import DATABASES, MIGRATED
from tests.support.model_rows import REQUEST, add_pool, migrated
from warpsmith.kernels_db.store.db import Database
from warpsmith.kernels_db.store.pool_file import Pool, PoolHeader, PoolReply, dump_pool, parse_pool
from warpsmith.workers.llm import AskPending, PoolMiss
from warpsmith.workers.llm.providers.factory import open_model
from warpsmith.workers.settings import Settings

HEADER = PoolHeader("layer_norm", "a" * 64, "cpu:x86_64", "cpp", "somebody", 1.7e9, "0.1.0", {}, {})


@pytest.fixture(params=DATABASES)
def db(request: pytest.FixtureRequest) -> Iterator[Database]:
    url: str = request.getfixturevalue(MIGRATED[request.param])
    with migrated(url) as database:
        yield database


def reply(text: str, ordinal: int = 0, **changes: object) -> PoolReply:
    recorded = PoolReply(REQUEST.identity, ordinal, "code", REQUEST.summary, text, "stop", "gpt-5", 10, 20, 1.5)
    return replace(recorded, **changes)  # type: ignore[arg-type]


def test_a_pool_answers_by_request_and_ordinal(db: Database) -> None:
    pool = parse_pool(dump_pool(Pool(HEADER, (reply("first: ünïcode ✓"), reply("second", 1)))))
    model = open_model({"provider": "replay", "pool": add_pool(db, pool)}, Settings(_env_file=None), db)
    first = model.complete(REQUEST)
    assert model.provider == "replay"
    assert (first.text, first.model, first.finish_reason) == ("first: ünïcode ✓", "gpt-5", "stop")
    assert (first.prompt_tokens, first.completion_tokens, first.latency_s) == (10, 20, 1.5)
    assert first.cost_usd == 0.0
    assert model.complete(replace(REQUEST, ordinal=1)).text == "second"
    assert model.complete(replace(REQUEST, attempt_id="at_other")) == first


def test_unknown_counts_stay_unknown(db: Database) -> None:
    pool = Pool(
        HEADER,
        (reply("x", model=None, finish_reason=None, prompt_tokens=None, completion_tokens=None, latency_s=None),),
    )
    found = open_model({"provider": "replay", "pool": add_pool(db, pool)}, Settings(_env_file=None), db).complete(
        REQUEST
    )
    assert (found.model, found.prompt_tokens, found.completion_tokens, found.latency_s) == (None, None, None, 0.0)


def test_a_miss_names_the_request(db: Database) -> None:
    model = open_model(
        {"provider": "replay", "pool": add_pool(db, Pool(HEADER, (reply("x"),)))}, Settings(_env_file=None), db
    )
    with pytest.raises(PoolMiss) as caught:
        model.complete(replace(REQUEST, ordinal=2))
    assert (
        str(caught.value) == "pool pl_1 has no reply to code 'One pass' (fusion), variant 0 (re-ask 2) [eeeeeeeeeeee]"
    )
    with pytest.raises(PoolMiss, match=r"\[ffffffffffff\]"):
        model.complete(replace(REQUEST, identity="f" * 64))


def test_an_agent_is_asked_for_what_a_pool_has_not(db: Database) -> None:
    document = {"provider": "agent", "pool": add_pool(db, Pool(HEADER, (reply("recorded"),)))}
    model = open_model(document, Settings(_env_file=None), db)
    assert model.provider == "agent"
    assert model.complete(REQUEST).text == "recorded"
    with pytest.raises(AskPending):
        model.complete(replace(REQUEST, ordinal=1))
