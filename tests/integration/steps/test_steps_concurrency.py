"""Steps from several threads and processes at once: exactly one wins, and nothing is done twice."""

from __future__ import annotations

import multiprocessing
import os
import random
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pytest
from sqlalchemy import select

from tests.services import on_both_databases
from tests.support.steps_support import LEASE_S, SETTINGS, Driver, create, idea, small_policy, source, verdict
from warpsmith.kernels_db.store.db import Database
from warpsmith.kernels_db.store.tables import AttemptRow
from warpsmith.workers import steps

THREADS = 8
SHORT_LEASE_S = 1.5
"""After which what a killed process had is taken by another; a process that only waited for a core has not lost it."""
PATIENCE_S = 120.0
POLICY = {"name": "idea_beam"}


@on_both_databases("db")
def test_one_of_many_threads_gets_the_claim(db: Database) -> None:
    driver = Driver(db, create(db))
    waiting: list[steps.Message] = []
    for _ in range(5):
        waiting += driver.advance()
        message = waiting.pop(0)
        barrier = Barrier(THREADS)

        def claim(number: int, attempt_id: str = message.attempt_id, start: Barrier = barrier) -> steps.Work | None:
            start.wait()
            return steps.claim(db, attempt_id, f"worker-{number}", LEASE_S, driver.now)

        with ThreadPoolExecutor(THREADS) as pool:
            works = list(pool.map(claim, range(THREADS)))
        won = [number for number, work in enumerate(works) if work is not None]
        assert len(won) == 1
        work = works[won[0]]
        assert work is not None
        assert driver.complete(work, f"worker-{won[0]}")
    driver.check()


@on_both_databases("db")
def test_one_of_many_threads_advances(db: Database) -> None:
    driver = Driver(db, create(db))
    for _ in range(4):
        barrier = Barrier(THREADS)

        def advance(_: int, start: Barrier = barrier) -> list[steps.Message]:
            start.wait()
            return driver.advance()

        with ThreadPoolExecutor(THREADS) as pool:
            answers = list(pool.map(advance, range(THREADS)))
        messages = [message for answer in answers for message in answer]
        assert len(messages) == len(set(messages)) > 0
        assert sum(bool(answer) for answer in answers) == 1
        for message in messages:
            driver.step(message)
    driver.check()


def play(url: str, search_id: str, seed: int) -> None:
    """A worker process: takes whatever is pending until the search has ended; advances, and reconciles too."""
    db = Database(url)
    driver = Driver(db, search_id, luck=random.Random(seed))
    deadline = time.monotonic() + PATIENCE_S
    while driver.search().state in ("queued", "running"):
        assert time.monotonic() < deadline, "the search did not end"
        steps.advance(db, search_id, time.time(), driver.decide)
        steps.reconcile(db, time.time(), SETTINGS.model_copy(update={"resend_after_s": 0.05}), driver.decide)
        with db.reading() as session:
            pending = session.scalars(
                select(AttemptRow.id).where(AttemptRow.search_id == search_id, AttemptRow.state == "pending")
            ).all()
        for attempt_id in driver.luck.sample(list(pending), min(2, len(pending))):
            owner = f"{os.getpid()}-{driver.owner()}"
            work = steps.claim(db, attempt_id, owner, SHORT_LEASE_S, time.time())
            if work is not None:
                _complete(db, work, owner)
    db.dispose()


def _complete(db: Database, work: steps.Work, owner: str) -> None:
    """A result that depends on the work alone, so that whoever does it brings the same."""
    now = time.time()
    if work.kind == "ideate":
        steps.complete_ideate(db, work.attempt_id, owner, [idea(1), idea(2)], [], now)
    elif work.kind == "code":
        steps.complete_code(db, work.attempt_id, owner, source(work.node.seq * 10 + work.ordinal), "cpp", [], now)
    elif work.level == "screen" and work.ordinal == 0 and work.node.seq % 2:
        steps.complete_judge(db, work.attempt_id, owner, verdict("screen", "rejected"), now)
    else:
        assert work.level is not None
        score = None if work.level == "baseline" else 1.0 + work.node.seq / 10
        steps.complete_judge(db, work.attempt_id, owner, verdict(work.level, score=score), now)


@on_both_databases("db")
@pytest.mark.parametrize("kills", [pytest.param(0, marks=pytest.mark.nightly), 2])
def test_processes_play_one_search_together(db: Database, kills: int) -> None:
    """Also when some of them are killed in the middle: the tree is the one that a lone worker grows."""
    search_id = create(db, now=time.time())
    url = db.url.render_as_string(hide_password=False)
    context = multiprocessing.get_context("spawn")
    processes = [context.Process(target=play, args=(url, search_id, seed)) for seed in range(2 + kills)]
    for process in processes:
        process.start()
    driver = Driver(db, search_id, small_policy())
    deadline = time.monotonic() + PATIENCE_S
    for process in processes[:kills]:
        seen = len(driver.events())
        while len(driver.events()) < seen + 3 and driver.search().state != "finished":
            assert time.monotonic() < deadline
            time.sleep(0.005)
        os.kill(process.pid or 0, signal.SIGKILL)
    for process in processes:
        process.join(PATIENCE_S)
    assert [process.exitcode for process in processes[kills:]] == [0, 0]
    driver.check()
    assert driver.search().state == "finished"
    shape = [(n.seq, n.state, n.verdict, n.repairs, n.score) for n in driver.nodes()]
    assert shape == [
        (0, "judged", "accepted", 0, None),
        (1, "judged", "accepted", 1, 1.1),
        (2, "judged", "accepted", 0, 1.2),
        (3, "judged", "accepted", 1, 1.3),
        (4, "judged", "accepted", 0, 1.4),
    ]
    assert driver.search().candidates == 6
