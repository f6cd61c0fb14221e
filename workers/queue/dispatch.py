"""Hand messages to the broker, from any process that commits the steps they announce."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Protocol

from amqp.exceptions import AMQPError, MessageNacked, NotFound, RecoverableConnectionError
from celery import Celery
from kombu.exceptions import OperationalError

from warpsmith.workers import log, tracing
from warpsmith.workers.queue_names import IMPORT_TASK, PROFILE_TASK, REVERIFY_TASK, TRY_TASK, task_of
from warpsmith.workers.settings import split_addresses

logger = log.get(__name__)

RETRY = {"interval_start": 0.0, "interval_step": 0.1, "interval_max": 0.1}
"""Retries are at once, on a fresh connection: a pooled one may have died with the broker."""

CONFIRM_TIMEOUT_S = 5.0
"""Most seconds that a sender waits until a quorum queue has confirmed a message.

It elects a new leader within about a second; without most of its nodes it confirms nothing.
"""

WAIT_S = 10.0
"""Seconds within which a call waits for confirmations and in pauses, however many messages it has.

After that it goes on only while each message is taken at once.
"""

AT_ONCE_S = 0.5
"""Seconds for a confirmation after that; a queue that is well takes milliseconds."""

PASSING = (MessageNacked, RecoverableConnectionError, ConnectionResetError, BrokenPipeError)
"""Refusals that pass by themselves: a queue that elects a leader refuses the message, a connection is lost."""

PAUSES_S = (0.2, 0.4, 0.8, 1.6)
"""Pauses before a message is sent again after such a refusal."""

REFUSALS = (OperationalError, OSError, AMQPError, MessageNacked)
"""A broker that cannot be reached, or a queue of it that takes no message now."""


class Message(Protocol):
    """A pending attempt and the queue of its step (`warpsmith.workers.steps.Message`)."""

    @property
    def attempt_id(self) -> str: ...

    @property
    def queue(self) -> str: ...


def send(app: Celery, messages: Iterable[Message]) -> int:
    """Send `messages`, after the commit that made them; returns how many went out.

    Never raises for a broker that cannot be reached: the attempts are pending in the database and the reconciler sends
    them again.
    """
    return _send_all(app, ((task_of(message.queue), message) for message in messages))


def send_reverifications(app: Celery, messages: Iterable[Message]) -> int:
    """Send the messages of re-verifications, with their ids in place of an attempt's."""
    return _send_all(app, ((REVERIFY_TASK, message) for message in messages))


def send_imports(app: Celery, messages: Iterable[Message]) -> int:
    """Send the messages of imports, with their ids in place of an attempt's."""
    return _send_all(app, ((IMPORT_TASK, message) for message in messages))


def send_tries(app: Celery, messages: Iterable[Message]) -> int:
    """Send the messages of tries, with their ids in place of an attempt's."""
    return _send_all(app, ((TRY_TASK, message) for message in messages))


def _send_all(app: Celery, messages: Iterable[tuple[str, Message]]) -> int:
    sent, deadline = 0, time.monotonic() + WAIT_S
    for task, message in messages:
        try:
            _send(app, task, message.attempt_id, message.queue, deadline)
        except REFUSALS as error:
            logger.warning(
                "the broker takes no messages; the reconciler will send the steps again",
                error=str(error) or type(error).__name__,
            )
            break
        sent += 1
    return sent


def send_profile(app: Celery, profile_id: str, queue: str) -> bool:
    """Announce a requested profile; returns whether the message went out.

    Where it did not, a second request sends it again.
    """
    try:
        _send(app, PROFILE_TASK, profile_id, queue, time.monotonic() + WAIT_S)
    except REFUSALS as error:
        logger.warning(
            "the broker takes no messages; the profile waits to be asked for again",
            error=str(error) or type(error).__name__,
        )
        return False
    return True


def _send(app: Celery, task: str, row_id: str, queue: str, deadline: float) -> None:
    with tracing.span(f"send {task}", "PRODUCER") as note:
        note(queue=queue, job=row_id)
        for pause_s in (*PAUSES_S, None):
            try:
                _publish(app, task, row_id, queue, deadline)
                return
            except REFUSALS as error:
                if pause_s is None or not _passes(error) or time.monotonic() + pause_s > deadline:
                    raise
                time.sleep(pause_s)


def _passes(error: Exception) -> bool:
    """Check whether a refusal passes by itself; kombu wraps what it has retried itself."""
    cause = error.__cause__ if isinstance(error, OperationalError) else error
    # RabbitMQ says of a queue whose leader is lost that it is not found, and down.
    return isinstance(cause, PASSING) or (isinstance(cause, NotFound) and " down" in str(cause))


def _publish(app: Celery, task: str, row_id: str, queue: str, deadline: float) -> None:
    retries = len(split_addresses(str(app.conf.broker_url)))  # one for each of the broker's nodes
    share_s = (deadline - time.monotonic()) / (1 + retries)
    app.send_task(
        task,
        args=(row_id,),
        queue=queue,
        headers=tracing.headers(),
        retry=True,
        retry_policy={**RETRY, "max_retries": retries},
        confirm_timeout=min(CONFIRM_TIMEOUT_S, max(AT_ONCE_S, share_s)),
        ignore_result=True,
    )
