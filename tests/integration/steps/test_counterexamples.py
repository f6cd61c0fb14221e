"""Counterexamples that verifications found: kept with the verdict, once, some of them; asked of later candidates."""

from __future__ import annotations

import threading
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
from sqlalchemy import select

from tests.services import on_both_databases
from tests.support.reverifying import keep
from tests.support.steps_support import OP, TARGET, Driver, create, verdict
from warpsmith.kernels_db.job.attack_documents import Recipe
from warpsmith.kernels_db.job.documents import Job, Verdict
from warpsmith.kernels_db.spec.op import Op, parse_op
from warpsmith.kernels_db.spec.resolve import limits_with
from warpsmith.kernels_db.store import records
from warpsmith.kernels_db.store.counterexamples import (
    MOST_ASKED,
    MOST_BYTES,
    MOST_KEPT,
    Counterexample,
    ask_first,
    keep_counterexample,
    known_counterexamples,
)
from warpsmith.kernels_db.store.db import Database
from warpsmith.kernels_db.store.tables import AttemptRow, CounterexampleRow, EventRow, SearchRow
from warpsmith.service.story.gather import gather
from warpsmith.workers import steps
from warpsmith.workers.judge.gates import attack
from warpsmith.workers.queue.jobs import job_of
from warpsmith.workers.queue.model_step import request_context
from warpsmith.workers.queue.reverification_task import reverification_job
from warpsmith.workers.reverification import Finding, ask, claim, finish
from warpsmith.workers.settings import Settings
from warpsmith.workers.steps import Work

CPU, CUDA = str(TARGET), "cuda:sm_90"


def recipe(seed: int = 7, workload: str = "ragged", **changed: Any) -> Recipe:
    change = {"input": "x", "move": "scale", "exponent": -20, "by": 1e300, **changed}
    return {"workload": workload, "seed": seed, "changes": [change]}


def wrong(found: object, kind: str = "counterexample", **changes: Any) -> Verdict:
    """A full verification that found the candidate wrong on these values."""
    failure = {"kind": kind, "message": "wrong", "recipe": found, "description": "x: scaled by 2^-20", "eager": 1.0}
    return verdict("verify", "rejected", gate="verify", **{"failure": failure, **changes})


def store_op(db: Database, op: Op = OP) -> str:
    with db.writing() as session:
        return records.add_op(session, op)[0].id


def rows(db: Database) -> list[CounterexampleRow]:
    with db.reading() as session:
        return list(session.scalars(select(CounterexampleRow).order_by(CounterexampleRow.created_at)))


def kept(db: Database, op_id: str, document: Any, now: float = 1.0, target: str = CPU) -> int:
    """Keep what a verdict found; how many are kept then."""
    with db.writing() as session:
        keep_counterexample(session, op_id, target, document, now)
    return len(rows(db))


def known(db: Database, op_id: str, target: str = CPU) -> list[Recipe]:
    with db.reading() as session:
        return [one.recipe for one in known_counterexamples(session, op_id, target)]


@on_both_databases("db")
def test_a_verdicts_counterexample_is_kept_once_as_it_was(db: Database) -> None:
    op_id = store_op(db)
    assert kept(db, op_id, wrong(recipe())) == 1
    assert kept(db, op_id, wrong(dict(reversed(list(recipe().items())))), now=2.0) == 1
    assert kept(db, op_id, wrong(recipe(), "crash"), now=3.0) == 1
    assert kept(db, op_id, wrong(recipe(8), "crash"), now=4.0) == 2, "whatever went wrong on such values"
    assert known(db, op_id) == [recipe(8), recipe()]
    assert {row.description for row in rows(db)} == {"x: scaled by 2^-20"}


def test_another_op_and_another_type_of_device_have_their_own(db: Database) -> None:
    op_id, other_id = store_op(db), store_op(db, OP.model_copy(update={"description": "another"}))
    for owner, target in ((op_id, CPU), (op_id, CUDA), (other_id, CPU)):
        kept(db, owner, wrong(recipe()), target=target)
    assert len(rows(db)) == 3
    assert known(db, op_id, "cpu:aarch64") == known(db, op_id, CUDA) == [recipe()]
    assert known(db, other_id, CUDA) == []


@pytest.mark.parametrize(
    "found",
    [
        recipe(workload="holdout-1"),
        {**recipe(), "more": 1},
        {"workload": "ragged", "seed": 1},
        {**recipe(), "seed": True},
        {**recipe(), "changes": ["x"]},
        recipe(value="x" * MOST_BYTES),
        "a recipe",
        None,
    ],
)
def test_derived_hold_outs_and_what_is_no_recipe_are_not_kept(db: Database, found: object) -> None:
    assert kept(db, store_op(db), wrong(found)) == 0


def test_only_a_full_verification_that_is_sure_brings_one(db: Database) -> None:
    op_id = store_op(db)
    failure = {**wrong(recipe())["failure"], "cause": "memory"}  # type: ignore[dict-item]
    for document in (
        wrong(recipe(), failure=failure),
        {**wrong(recipe()), "level": "screen"},
        {**wrong(recipe()), "verdict": "ambiguous"},
        verdict("verify", score=2.0),
    ):
        assert kept(db, op_id, document) == 0


@on_both_databases("db")
def test_the_newest_stay(db: Database) -> None:
    op_id = store_op(db)
    for seed in range(MOST_KEPT + 3):
        kept(db, op_id, wrong(recipe(seed)), now=float(seed))
    kept(db, op_id, wrong(recipe(0)), target=CUDA)
    assert [one["seed"] for one in known(db, op_id)] == list(range(MOST_KEPT + 2, 2, -1))
    assert len(known(db, op_id, CUDA)) == 1


@on_both_databases("db")
def test_searches_that_find_the_same_at_once_keep_it_once(db: Database) -> None:
    op_id, start, failures = store_op(db), threading.Barrier(6), []

    def run(number: int) -> None:
        try:
            start.wait(30)
            for seed in range(MOST_KEPT):
                kept(db, op_id, wrong(recipe(seed + number)), now=float(seed))
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert failures == []
    assert len({row.digest for row in rows(db)}) == len(rows(db)) == MOST_KEPT


def test_a_hold_out_that_the_op_declares_is_kept_and_hidden(db: Database) -> None:
    secret = {"id": "secret", "role": "holdout", "axes": {"n": 7776}}
    document = OP.document()
    op_id = store_op(db, parse_op({**document, "workloads": [*document["workloads"], secret]}))
    kept(db, op_id, wrong(recipe()))
    kept(db, op_id, wrong(recipe(workload="secret")), now=2.0)
    assert [one["workload"] for one in known(db, op_id)] == ["secret", "ragged"]
    with db.reading() as session:
        assert [one.hidden for one in known_counterexamples(session, op_id, CPU)] == [True, False]


def job(*workloads: str) -> Job:
    return {"op": {}, "workloads": [{"id": name} for name in workloads]}  # type: ignore[typeddict-item]


def test_a_job_asks_the_newest_and_one_of_each_of_its_workloads() -> None:
    def stored(seed: int, workload: str) -> Counterexample:
        return Counterexample(recipe(seed, workload), "said", hidden=False)

    found = [*(stored(100 - n, "a") for n in range(20)), stored(50, "b"), stored(40, "b"), stored(30, "other")]
    asks = job("a", "b")
    ask_first(asks, found)
    seeds = [one["seed"] for one in asks["op"]["counterexamples"]]
    assert seeds == [100, 99, 98, 97, 96, 95, 94, 50]
    nothing = job("c")
    ask_first(nothing, found)
    assert "counterexamples" not in nothing["op"]
    assert MOST_ASKED == attack.MOST_KNOWN


def searched(db: Database) -> tuple[Driver, Work]:
    """A search whose champion is being verified."""
    driver = Driver(db, create(db))
    return driver, driver.until("verify")


@on_both_databases("db")
def test_what_a_verification_found_is_asked_of_the_next_search(db: Database) -> None:
    driver, work = searched(db)
    assert steps.complete_judge(db, work.attempt_id, "me", wrong(recipe(7, "large")), driver.now)
    store_op(db)
    (row,) = rows(db)
    assert (row.node_id, row.kernel_id, row.device, row.created_at) == (work.node.id, None, "cpu", driver.now)
    kept(db, row.op_id, wrong(recipe(8)), now=driver.now + 1)

    later = Driver(db, create(db))
    (message,) = later.advance()
    baseline = later.claim(message.attempt_id)
    assert baseline.level == "baseline"
    assert baseline.counterexamples == ()
    assert "counterexamples" not in job_of(baseline, limits_with(None))["op"]
    assert later.complete(baseline)
    seen = {}
    for kind in ("ideate", "code", "judge", "verify"):
        later = Driver(db, create(db))
        seen[kind] = later.until(kind)
        assert [one.recipe for one in seen[kind].counterexamples] == [recipe(8), recipe(7, "large")]
        if kind in ("ideate", "code"):
            assert request_context(seen[kind]).counterexamples == ("x: scaled by 2^-20",) * 2
            hidden = tuple(replace(one, hidden=True) for one in seen[kind].counterexamples)
            assert request_context(replace(seen[kind], counterexamples=hidden)).counterexamples == ()
    # A screening has the tests that recipes name, beside the bench workloads.
    screening = job_of(seen["judge"], limits_with(None))
    assert screening["op"]["counterexamples"] == [recipe(8), recipe(7, "large")]
    assert {one["role"] for one in screening["workloads"]} == {"bench", "test"}
    plain = job_of(replace(seen["judge"], counterexamples=()), limits_with(None))
    assert {one["role"] for one in plain["workloads"]} == {"bench"}
    assert job_of(seen["verify"], limits_with(None))["op"]["counterexamples"] == [recipe(8), recipe(7, "large")]


@on_both_databases("db")
def test_the_event_and_the_story_tell_what_a_search_came_to(db: Database) -> None:
    driver, work = searched(db)
    entries = [{"workload": "large", "tries": 5, "ratio": 0.25, "recipe": None}]
    attack = {"tries": 5, "seconds": 1.5, "workloads": entries, "counterexample": None}
    document: Any = {**verdict("verify", score=2.0), "attack": attack}
    assert steps.complete_judge(db, work.attempt_id, "me", document, driver.now)
    summary = {"tries": 5, "seconds": 1.5, "ratio": 0.25, "found": False}
    with db.reading() as session:
        payloads = session.scalars(select(EventRow.payload).where(EventRow.type.in_(("node.judged", "node.verified"))))
        assert [payload.get("attack") for payload in payloads][-1:] == [summary]
        search = session.get_one(SearchRow, driver.search_id)
        assert gather(session, search, 60.0).attack == summary


def test_a_result_that_is_dropped_keeps_nothing(db: Database) -> None:
    driver, work = searched(db)
    assert not steps.complete_judge(db, work.attempt_id, "somebody else", wrong(recipe()), driver.now)
    with pytest.raises(ValueError, match="level"):
        steps.complete_judge(db, work.attempt_id, "me", {**wrong(recipe()), "level": "screen"}, driver.now)
    assert rows(db) == []


def test_a_bundle_carries_them(db: Database) -> None:
    driver = Driver(db, create(db))
    kept(db, store_op(db), wrong(recipe(7, "large")))
    work = driver.until("judge")
    with db.writing() as session:
        attempt = session.get_one(AttemptRow, work.attempt_id)
        attempt.state, attempt.owner, attempt.lease_expires_at = "pending", None, None
    taken = steps.take_jobs(
        db,
        driver.search_id,
        partial(job_of, limits=limits_with(None)),
        driver.now,
        most_bytes=10**7,
        also=lambda _, __: None,
    )
    assert taken.jobs
    assert [asked["op"]["counterexamples"] for _, asked in taken.jobs] == [[recipe(7, "large")]] * len(taken.jobs)


@on_both_databases("db")
def test_a_kernel_that_is_judged_again_is_asked_and_brings_its_own(db: Database) -> None:
    kernel_id, op_id = keep(db, OP), store_op(db)
    kept(db, op_id, wrong(recipe()))
    with db.writing() as session:
        row_id = ask(session, kernel_id, 10.0, cause="asked")[0].id
    work = claim(db, row_id, "me", 30.0, 10.0)
    assert work is not None
    assert reverification_job(work, Settings())["op"]["counterexamples"] == [recipe()]
    found = Finding("wrong", "wrong")
    assert not finish(db, row_id, "somebody else", found, wrong(recipe(8)), 11.0)
    assert len(rows(db)) == 1
    assert finish(db, row_id, "me", found, wrong(recipe(8)), 12.0)
    assert [(row.kernel_id, row.node_id) for row in rows(db)] == [(None, None), (kernel_id, None)]
