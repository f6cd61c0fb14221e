"""The broker's settings: several nodes, quorum queues, and passwords that no message shows."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from amqp.exceptions import MessageNacked, NotFound
from celery import Celery
from pydantic import ValidationError

from warpsmith.workers.queue import dispatch
from warpsmith.workers.queue.broker import reach_broker
from warpsmith.workers.queue.celery_app import make_app
from warpsmith.workers.queue.consumer import UNUSED, Consumer
from warpsmith.workers.settings import Settings, split_addresses

CLUSTER = "amqp://a:s3cret@127.0.0.1:9//;amqp://b:h1dden@127.0.0.1:10//"


@dataclass(frozen=True)
class Message:
    """A step's message."""

    attempt_id: str = "at_1"
    queue: str = "judge.cpu-x86_64"


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"broker_url": "redis://:s3cret@h/0;redis://:h1dden@g/0"}, "found 2 addresses (redis://), expected one"),
        ({"broker_url": "amqp://a:s3cret@h//;"}, "found 2 addresses (an empty one, amqp://), expected one"),
        ({"broker_url": "amqp://a:s3cret@h//;amqps://b:h1dden@g//"}, "found 2 addresses (amqp://, amqps://)"),
        ({"broker_url": "redis://:s3cret@h/0", "queue_type": "quorum"}, "queue_type: found quorum with a broker redis"),
        ({"queue_type": "quorum"}, "queue_type: found quorum with a broker redis+socket://, expected classic"),
        ({"queue_type": "stream"}, "'classic' or 'quorum'"),
    ],
)
def test_a_broker_that_cannot_be_so_is_refused_without_its_passwords(changes: dict[str, str], says: str) -> None:
    with pytest.raises(ValidationError) as refused:
        Settings(_env_file=None, **changes)
    assert says in str(refused.value)
    assert not {"s3cret", "h1dden"} & set(str(refused.value).replace("@", ":").split(":"))


def test_every_queue_of_ours_is_declared_as_the_setting_says() -> None:
    quorum = make_app(Settings(_env_file=None, broker_url=CLUSTER, queue_type="quorum"))
    classic = make_app(Settings(_env_file=None, broker_url=CLUSTER))
    for name in ("model", "judge.cpu-x86_64", "judge.cuda-sm_90"):
        assert quorum.amqp.queues[name].queue_arguments == {"x-queue-type": "quorum"}
        assert not classic.amqp.queues[name].queue_arguments
    assert quorum.conf.broker_transport_options["confirm_publish"] is True
    assert "confirm_publish" not in classic.conf.broker_transport_options


@pytest.mark.parametrize("queue_type", ["classic", "quorum"])
def test_a_node_that_falls_silent_is_left_before_leases_end(queue_type: str) -> None:
    settings = Settings(_env_file=None, broker_url=CLUSTER, queue_type=queue_type)
    conf = make_app(settings).conf
    # py-amqp gives a connection up that was silent for two heartbeats, and looks a few times in each.
    noticed_s = conf.broker_heartbeat * (2 + 1 / conf.broker_heartbeat_checkrate)
    reached_s = conf.broker_transport_options["connect_timeout"] * len(split_addresses(CLUSTER))
    assert noticed_s + reached_s < settings.lease_s
    assert conf.broker_heartbeat >= 5, "below that RabbitMQ's own pages count on false alarms"
    for limit in ("read_timeout", "write_timeout"):
        assert conf.broker_transport_options[limit] < settings.lease_s


def test_the_api_waits_no_longer_than_it_is_told() -> None:
    conf = make_app(Settings(_env_file=None, broker_url=CLUSTER), answer_timeout_s=2.0).conf
    assert [conf.broker_transport_options[limit] for limit in ("read_timeout", "write_timeout")] == [2.0, 2.0]


def test_a_worker_makes_no_queues_for_delays() -> None:
    assert UNUSED in Consumer.__mro__[2].Blueprint.default_steps, "Celery has that step no more"
    assert UNUSED not in Consumer.Blueprint.default_steps


def test_a_cluster_that_does_not_answer_is_named_without_passwords() -> None:
    name, error = reach_broker(make_app(Settings(_env_file=None, broker_url=CLUSTER)), 2.0)
    assert name == "amqp://a:**@127.0.0.1:9//;amqp://b:**@127.0.0.1:10//"
    assert "refused" in str(error)


@pytest.fixture
def silent() -> Iterator[str]:
    """The address of a node that accepts connections and says nothing, as a frozen one does."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"amqp://127.0.0.1:{server.getsockname()[1]}//"


def test_silent_nodes_take_no_longer_than_they_are_given(silent: str) -> None:
    app = make_app(Settings(_env_file=None, broker_url=f"{silent};{silent}"))
    began = time.monotonic()
    assert reach_broker(app, 1.0, tries=1).error is not None
    assert time.monotonic() - began < 5.0


@pytest.mark.parametrize("error", [MessageNacked(), NotFound("queue 'model' is down"), OSError(), TimeoutError()])
def test_a_queue_that_takes_no_message_stops_no_sender(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    tried: list[dict[str, Any]] = []

    def refuse(*_: object, **options: Any) -> None:
        tried.append(options)
        raise error

    app = make_app(Settings(_env_file=None, broker_url=CLUSTER, queue_type="quorum"))
    monkeypatch.setattr(Celery, "send_task", refuse)
    monkeypatch.setattr(dispatch, "PAUSES_S", ())
    assert dispatch.send(app, [Message(), Message()]) == 0
    assert dispatch.send_profile(app, "pf_1", "judge.cpu-x86_64") is False
    assert [one["confirm_timeout"] for one in tried] == [dispatch.CONFIRM_TIMEOUT_S] * 2
    assert [one["retry_policy"]["max_retries"] for one in tried] == [2, 2], "one for each node"


@pytest.mark.parametrize("answer", [MessageNacked(), NotFound("queue 'model' is down")])
def test_a_queue_that_elects_a_leader_is_asked_again(monkeypatch: pytest.MonkeyPatch, answer: Exception) -> None:
    """Its messages would otherwise wait until they count as lost."""
    answers: list[Exception | None] = [answer, answer, None, None]

    def take(*_: object, **__: object) -> None:
        if (given := answers.pop(0)) is not None:
            raise given

    monkeypatch.setattr(Celery, "send_task", take)
    monkeypatch.setattr(dispatch, "PAUSES_S", (0.0, 0.0))
    app = make_app(Settings(_env_file=None, broker_url=CLUSTER, queue_type="quorum"))
    assert dispatch.send(app, [Message(), Message()]) == 2
    assert answers == []
