"""Workers, reconciler and brokers, as real processes."""

from __future__ import annotations

import json
import signal
import time
from dataclasses import dataclass
from pathlib import Path

import pytest
from sqlalchemy import select

from tests.kinds import nightly_but
from tests.services import RedisServer
from tests.support import scenario
from tests.support.fleet import TARGET, Fleet
from tests.support.launching import living
from tests.support.searching import Searching
from tests.support.waiting import wait_until
from warpsmith.kernels_db.store.tables import WorkerRow
from warpsmith.workers import steps
from warpsmith.workers.queue import dispatch
from warpsmith.workers.queue.celery_app import make_app
from warpsmith.workers.queue_names import JUDGE_TASK, MODEL_TASK, judge_queue, role_of, target_of, task_of
from warpsmith.workers.settings import Settings


def workers_of(searching: Searching) -> dict[str, WorkerRow]:
    """The workers that reported in, by role."""
    with searching.db.reading() as session:
        return {row.role: row for row in session.scalars(select(WorkerRow))}


@pytest.mark.nightly
def test_a_search_runs_to_its_end(tmp_path: Path, redis_server: RedisServer) -> None:
    searching = Searching.create(tmp_path / "warpsmith.db")
    with Fleet(tmp_path / "home", redis_server.url, searching.url) as fleet:
        fleet.start("model", "judge", "reconciler")
        assert searching.begin(redis_server.url) == 1
        searching.wait(120, fleet)
        assert searching.outcome() == scenario.outcome(), searching.describe()
        assert searching.answered() == scenario.answered()
        assert searching.search().candidates == scenario.candidates()
        assert "kernel.kept" in searching.events()
        workers = workers_of(searching)
        assert workers.keys() == {"model", "judge", "reconciler"}
        assert workers["judge"].target == TARGET
        assert workers["model"].facts["versions"]["celery"]
        lines = [json.loads(line) for line in fleet.log("judge").splitlines() if line.startswith("{")]
        judged = [line for line in lines if line.get("search") == searching.id]
        assert {line["node"] for line in judged} >= {searching.nodes()[0].id}
        family = [child for name in fleet.processes for child in fleet.descendants(name)]
        assert any("warpsmith.workers.judge" in line for line in living(family))
    assert living(family) == []


@pytest.mark.nightly
def test_steps_travel_over_rabbitmq(tmp_path: Path, rabbitmq_url: str) -> None:
    searching = Searching.create(tmp_path / "warpsmith.db")
    with Fleet(tmp_path / "home", rabbitmq_url, searching.url) as fleet:
        fleet.start("judge")
        assert searching.begin(rabbitmq_url) == 1
        wait_until(lambda: searching.nodes()[0].verdict == "accepted", 90, f"the baselines\n{fleet.logs()}")


@pytest.mark.nightly
def test_a_worker_waits_for_its_broker_and_the_reconciler_sends_what_was_lost(
    tmp_path: Path, redis_server: RedisServer
) -> None:
    searching = Searching.create(tmp_path / "warpsmith.db")
    redis_server.kill()
    began = time.monotonic()
    assert searching.begin(redis_server.url) == 0
    assert time.monotonic() - began < 60
    with Fleet(tmp_path / "home", redis_server.url, searching.url) as fleet:
        fleet.start("judge", "reconciler")
        wait_until(lambda: "Cannot connect" in fleet.log("judge"), 30, "the worker to miss its broker")
        redis_server.start()
        wait_until(lambda: searching.nodes()[0].verdict == "accepted", 90, f"the baselines\n{fleet.logs()}")


@pytest.mark.nightly
def test_a_worker_outlives_a_broker_without_memory(tmp_path: Path, redis_server: RedisServer) -> None:
    searching = Searching.create(tmp_path / "warpsmith.db")
    assert searching.begin(redis_server.url) == 1
    with redis_server.client() as client:
        client.config_set("maxmemory", 1)
        with Fleet(tmp_path / "home", redis_server.url, searching.url) as fleet:
            fleet.start("judge", "reconciler")
            wait_until(lambda: "maxmemory" in fleet.log("judge"), 120, f"a message that was taken\n{fleet.logs()}")
            time.sleep(2.0)
            client.config_set("maxmemory", 0)
            wait_until(lambda: searching.nodes()[0].verdict == "accepted", 120, f"the baselines\n{fleet.logs()}")
            assert fleet.processes["judge"].poll() is None, "the first one did it"


@pytest.mark.nightly
def test_the_reconciler_survives_a_database_that_is_not_there_yet(tmp_path: Path, redis_server: RedisServer) -> None:
    from warpsmith.kernels_db.store.db import Database  # noqa: PLC0415

    url = f"sqlite:///{tmp_path / 'warpsmith.db'}"
    with Fleet(tmp_path / "home", redis_server.url, url) as fleet:
        fleet.start("reconciler")
        wait_until(lambda: "nothing is reconciled" in fleet.log("reconciler"), 30, "the missing schema to be logged")
        db = Database(url)
        db.upgrade()

        def reported() -> bool:
            with db.reading() as session:
                return session.scalar(select(WorkerRow.role)) == "reconciler"

        wait_until(reported, 30, f"the reconciler's heartbeat\n{fleet.logs()}")
        db.dispose()


@pytest.mark.parametrize("stop", nightly_but(signal.SIGTERM.__eq__, [signal.SIGTERM, signal.SIGINT]))
def test_the_reconciler_stops_in_order(tmp_path: Path, redis_server: RedisServer, stop: signal.Signals) -> None:
    searching = Searching.create(tmp_path / "warpsmith.db")
    with Fleet(tmp_path / "home", redis_server.url, searching.url) as fleet:
        fleet.start("reconciler")
        wait_until(lambda: "reconciler" in workers_of(searching), 30, "the reconciler")
        fleet.processes["reconciler"].send_signal(stop)
        assert fleet.processes["reconciler"].wait(timeout=60) == 0
        assert "the reconciler ended" in fleet.log("reconciler")
        assert "Traceback" not in fleet.log("reconciler")


def test_a_killed_worker_leaves_no_orphan(tmp_path: Path, redis_server: RedisServer) -> None:
    searching = Searching.create(tmp_path / "warpsmith.db")
    with Fleet(tmp_path / "home", redis_server.url, searching.url) as fleet:
        fleet.start("judge")
        searching.begin(redis_server.url)
        wait_until(
            lambda: any("warpsmith.workers.judge" in line for line in living(fleet.descendants("judge"))),
            60,
            f"the judge\n{fleet.logs()}",
        )
        family = fleet.descendants("judge")
        assert len(family) >= 2
        fleet.kill("judge")
        wait_until(lambda: not living(family), 30, "the children to end with their parent")


def test_a_cancelled_search_cuts_its_judge_short_and_drops_the_result(
    tmp_path: Path, redis_server: RedisServer
) -> None:
    searching = Searching.create(tmp_path / "warpsmith.db")
    with Fleet(tmp_path / "home", redis_server.url, searching.url) as fleet:
        fleet.start("judge")
        searching.begin(redis_server.url)
        wait_until(lambda: bool(fleet.descendants("judge")), 60, "the worker")
        wait_until(lambda: "search.started" in searching.events(), 60, "the search")
        steps.cancel(searching.db, searching.id, time.time())
        wait_until(searching.ended, 30, "the search to be cancelled")
        time.sleep(1.0)
        assert searching.nodes()[0].verdict is None


@dataclass(frozen=True)
class Message:
    attempt_id: str
    queue: str


@pytest.mark.nightly
def test_a_message_for_nothing_is_let_go(tmp_path: Path, redis_server: RedisServer) -> None:
    searching = Searching.create(tmp_path / "warpsmith.db")
    app = make_app(Settings(broker_url=redis_server.url))
    assert dispatch.send(app, [Message("at_unknown", "model"), Message("at_unknown", "model")]) == 2
    with redis_server.client() as client:
        assert client.llen("model") == 2
        body = json.loads(client.lrange("model", 0, 0)[0])
        assert body["content-type"] == "application/json"
        assert body["headers"]["argsrepr"] == "('at_unknown',)"
        with Fleet(tmp_path / "home", redis_server.url, searching.url) as fleet:
            fleet.start("model")
            wait_until(
                lambda: client.llen("model") == 0 and client.hlen("unacked") == 0, 30, f"the queue\n{fleet.logs()}"
            )
            assert "Traceback" not in fleet.log("model")


def test_queues_name_their_target_and_their_task() -> None:
    queue = judge_queue("cuda:sm_90a")
    assert queue == "judge.cuda-sm_90a"
    assert (target_of(queue), role_of(queue), task_of(queue)) == ("cuda:sm_90a", "judge", JUDGE_TASK)
    assert (target_of("model"), role_of("model"), task_of("model")) == (None, "model", MODEL_TASK)
    with pytest.raises(ValueError, match="target: found 'cuda', expected device and architecture"):
        judge_queue("cuda")


def test_delivery_is_json_late_and_one_at_a_time() -> None:
    conf = make_app(Settings(broker_url="redis+socket:///nowhere.sock")).conf
    assert list(conf.accept_content) == ["json"]
    assert conf.task_acks_late
    assert conf.task_reject_on_worker_lost
    assert conf.worker_prefetch_multiplier == 1
    assert conf.task_ignore_result
    assert conf.result_backend is None
    assert conf.broker_connection_max_retries is None
    assert conf.broker_channel_error_retry, "a Redis without memory ends no worker"
