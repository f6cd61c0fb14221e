"""A message whose acknowledgement fails gives its credit back: a worker with a prefetch of one would wait for ever."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from kombu.connection import Connection

from tests.services import RedisServer
from warpsmith.workers.queue.celery_app import make_app
from warpsmith.workers.settings import Settings


def deliver(connection: Connection) -> Any:
    """A message taken from the queue under a prefetch of one, not yet acknowledged."""
    channel = connection.channel()
    channel.basic_qos(0, 1, False)
    queue = connection.SimpleQueue("model", channel=channel)
    queue.put({"id": "at_1"})
    return queue.get(timeout=5)


@pytest.mark.parametrize("answer", ["ack", "requeue"])
def test_a_failed_answer_gives_the_credit_back(redis_server: RedisServer, tmp_path: Path, answer: str) -> None:
    app = make_app(Settings(broker_url=redis_server.url, home=tmp_path))
    with app.connection_for_write() as connection:
        message = deliver(connection)
        assert not message.channel.qos.can_consume()
        redis_server.kill()
        with pytest.raises(connection.connection_errors):
            getattr(message, answer)()
        assert message.channel.qos.can_consume()
        redis_server.start()
