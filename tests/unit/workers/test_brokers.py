"""The broker's settings: several nodes, quorum queues, and passwords that no message shows."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest
from amqp.exceptions import AccessRefused, MessageNacked, NotFound
from celery import Celery
from kombu.connection import Connection
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
    assert all(dispatch.AT_ONCE_S <= one["confirm_timeout"] <= dispatch.WAIT_S / 3 for one in tried)
    assert [one["retry_policy"]["max_retries"] for one in tried] == [2, 2], "one for each node"


def wrapped(error: Exception) -> Exception:
    """The error as kombu gives it to a sender."""
    with pytest.raises(Exception) as caught, Connection("amqp://")._reraise_as_library_errors():
        raise error
    return caught.value


@pytest.mark.parametrize(
    "answer",
    [wrapped(MessageNacked()), wrapped(NotFound("queue 'model' is down")), wrapped(ConnectionResetError())],
)
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


class Broker:
    """A broker, on a clock of its own, that answers each message after some seconds."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, answer: Callable[[int, float], float | Exception]) -> None:
        self.now, self.asked, self.answer = 0.0, 0, answer
        monkeypatch.setattr(Celery, "send_task", self.take)
        monkeypatch.setattr(dispatch, "time", SimpleNamespace(monotonic=lambda: self.now, sleep=self.pass_time))
        self.app = make_app(Settings(_env_file=None, broker_url=CLUSTER, queue_type="quorum"))

    def pass_time(self, seconds: float) -> None:
        self.now += seconds

    def take(self, *_: object, confirm_timeout: float, retry_policy: dict[str, Any], **__: object) -> None:
        self.asked += 1
        answer = self.answer(self.asked, confirm_timeout)
        if isinstance(answer, TimeoutError):
            self.now += confirm_timeout * (1 + retry_policy["max_retries"])
        if isinstance(answer, Exception):
            raise answer
        self.now += answer


def test_a_call_waits_no_longer_for_many_messages_than_for_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each is refused a few times and then taken: the pauses of a call together are bounded."""
    each = 1 + len(dispatch.PAUSES_S)
    broker = Broker(monkeypatch, lambda asked, _: wrapped(MessageNacked()) if asked % each else 0.0)
    sent = dispatch.send(broker.app, [Message()] * 100)
    assert 0 < sent < 100
    assert broker.now <= dispatch.WAIT_S


def test_a_call_waits_for_confirmations_within_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Slowly confirmed until nothing is: nodes that confirm nothing take no more than what was left."""
    broker = Broker(monkeypatch, lambda asked, within: min(within, 3.0) if asked < 3 else TimeoutError())
    assert dispatch.send(broker.app, [Message()] * 100) == 2
    assert broker.asked == 3
    assert broker.now <= dispatch.WAIT_S + 3 * dispatch.AT_ONCE_S


def test_a_broker_that_is_well_is_sent_all_however_long_it_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    broker = Broker(monkeypatch, lambda *_: 0.2)
    assert dispatch.send(broker.app, [Message()] * 100) == 100
    assert broker.now > dispatch.WAIT_S


@pytest.mark.parametrize(
    "error",
    [
        wrapped(NotFound("no queue 'model' in vhost '/'")),
        wrapped(AccessRefused("no")),
        wrapped(ConnectionRefusedError()),
        wrapped(TimeoutError()),
    ],
)
def test_what_does_not_pass_by_itself_is_not_waited_for(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    broker = Broker(monkeypatch, lambda *_: error)
    assert dispatch.send(broker.app, [Message(), Message()]) == 0
    assert (broker.asked, broker.now) == (1, 0.0)
