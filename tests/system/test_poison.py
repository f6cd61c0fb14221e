"""Messages that no version of Warpsmith sends: each is dropped with a line in the log, and the next one is served."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from celery.worker.consumer import Consumer as CeleryConsumer

from benchmarks.chaos.faults import POISON, send_poison
from tests.support import scenario
from tests.support.fleet import TARGET, Fleet
from tests.support.searching import Searching
from warpsmith.workers.queue import consumer, poison
from warpsmith.workers.queue.celery_app import make_app
from warpsmith.workers.queue.poison import names_row
from warpsmith.workers.queue_names import MODEL_QUEUE, judge_queue
from warpsmith.workers.settings import Settings


@pytest.mark.parametrize("row_id", [None, 17, ["at_1"], {"id": "at_1"}, "", "at_\x00", "at 1", "x" * 65])
def test_an_argument_that_can_be_no_id_is_dropped(row_id: object) -> None:
    assert not names_row(row_id)
    assert names_row("at_01m87ee2nt7yetnzaaneewk4jk")


@pytest.mark.parametrize("error", [KeyError("id"), TypeError("no string"), ValueError("no date")])
def test_an_error_in_reading_a_message_is_no_lost_connection(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    rejected: list[Any] = []

    def handler(*_: Any, **__: Any) -> Any:
        def take(_message: Any) -> None:
            raise error

        return take

    monkeypatch.setattr(CeleryConsumer, "create_task_handler", handler)
    consumer = poison.Consumer.__new__(poison.Consumer)
    consumer.connection_errors = (KeyError, OSError)
    consumer.create_task_handler()(SimpleNamespace(reject_log_error=lambda *given: rejected.append(given)))
    assert len(rejected) == 1


def test_workers_have_this_consumer() -> None:
    assert make_app(Settings(broker_url="redis+socket:///nowhere.sock")).conf.worker_consumer == (
        f"{consumer.__name__}:{consumer.Consumer.__name__}"
    )


@pytest.mark.nightly
@pytest.mark.timeout(600)
@pytest.mark.parametrize("broker", ["redis", "rabbitmq"])
def test_a_search_ends_beside_poison(tmp_path: Path, broker: str, request: pytest.FixtureRequest) -> None:
    url: str = request.getfixturevalue("redis_url" if broker == "redis" else "rabbitmq_url")
    searching = Searching.create(tmp_path / "warpsmith.db")
    with Fleet(tmp_path / "home", url, searching.url) as fleet:
        for queue in (MODEL_QUEUE, judge_queue(TARGET)):
            assert send_poison(url, queue) == len(POISON)
        fleet.start("model", "judge", "reconciler")
        before = {name: process.pid for name, process in fleet.processes.items()}
        searching.begin(url)
        searching.wait(150, fleet)
        assert searching.outcome() == scenario.outcome()
        for name in ("model", "judge"):
            assert fleet.processes[name].poll() is None
            assert fleet.processes[name].pid == before[name]
            assert "Connection to broker lost" not in fleet.log(name)
            # RabbitMQ's client fills in an id, so there it is an unknown step.
            assert broker == "rabbitmq" or "a message that cannot be read was dropped" in fleet.log(name)
