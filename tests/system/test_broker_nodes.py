"""A node of RabbitMQ that freezes under a sender."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from contextlib import suppress
from typing import NamedTuple
from urllib.parse import urlsplit

import pytest
from kombu.connection import Connection

from warpsmith.workers.queue import amqp_transport, celery_app, dispatch
from warpsmith.workers.queue.celery_app import make_app
from warpsmith.workers.settings import Settings

QUEUE = "judge.cpu-x86_64"


class Message(NamedTuple):
    """A step's message."""

    attempt_id: str
    queue: str


class Silenced:
    """Stands before a RabbitMQ and lets everything through, until it lets nothing through any more, as one that froze.

    New connections are accepted then, too: the kernel does that.
    """

    def __init__(self, host: str, port: int) -> None:
        self._behind = (host, port)
        self._server = socket.create_server(("127.0.0.1", 0))
        self._connections: list[socket.socket] = []
        self.silent = threading.Event()
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def port(self) -> int:
        return int(self._server.getsockname()[1])

    def _accept(self) -> None:
        with suppress(OSError):  # it is closed at the end
            while True:
                near, _ = self._server.accept()
                far = socket.create_connection(self._behind)
                self._connections += [near, far]
                for one, other in ((near, far), (far, near)):
                    threading.Thread(target=self._pass_on, args=(one, other), daemon=True).start()

    def _pass_on(self, one: socket.socket, other: socket.socket) -> None:
        with suppress(OSError):
            while data := one.recv(65536):
                if not self.silent.is_set():
                    other.sendall(data)

    def close(self) -> None:
        for one in (self._server, *self._connections):
            one.close()


@pytest.fixture
def freezing(rabbitmq_url: str) -> Iterator[tuple[str, Silenced]]:
    """The addresses of a cluster of which the first node can freeze, and that node."""
    parts = urlsplit(rabbitmq_url)
    node = Silenced(parts.hostname or "127.0.0.1", parts.port or 5672)
    yield f"{parts._replace(netloc=f'guest:guest@127.0.0.1:{node.port}').geturl()};{rabbitmq_url}", node
    node.close()


@pytest.mark.nightly  # as all that need a RabbitMQ, which .ci/run has for them alone
@pytest.mark.timeout(30, func_only=True)  # the server's own commands take seconds each
def test_a_sender_leaves_a_node_that_froze(freezing: tuple[str, Silenced], monkeypatch: pytest.MonkeyPatch) -> None:
    """Closing waits for no answer of it: with the limits below the test would end by its own."""
    addresses, node = freezing
    monkeypatch.setattr(dispatch, "CONFIRM_TIMEOUT_S", 0.3)
    monkeypatch.setattr(amqp_transport, "FAREWELL_S", 0.2)
    monkeypatch.setattr(celery_app, "ANSWER_TIMEOUT_S", 60.0)
    monkeypatch.setattr(celery_app, "CONNECT_TIMEOUT_S", 0.6)
    app = make_app(Settings(_env_file=None, broker_url=addresses, queue_type="quorum"))
    try:
        assert dispatch.send(app, [Message("at_1", QUEUE)]) == 1
        node.silent.set()
        assert dispatch.send(app, [Message("at_2", QUEUE)]) == 1
        with Connection(addresses.split(";")[1]) as connection:
            queue = connection.SimpleQueue(app.amqp.queues[QUEUE](connection.default_channel))
            assert [json.loads(queue.get(timeout=20).body)[0] for _ in range(2)] == [["at_1"], ["at_2"]]
    finally:
        app.close()
