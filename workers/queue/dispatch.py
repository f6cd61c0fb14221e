"""Hand messages to the broker, from any process that commits the steps they announce."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from celery import Celery
from kombu.exceptions import OperationalError

from warpsmith.workers import log, tracing
from warpsmith.workers.queue_names import IMPORT_TASK, PROFILE_TASK, REVERIFY_TASK, TRY_TASK, task_of

logger = log.get(__name__)

RETRY = {"max_retries": 1, "interval_start": 0.0, "interval_step": 0.1, "interval_max": 0.1}
"""One retry at once, on a fresh connection: a pooled one may have died with the broker."""


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
    sent = 0
    for task, message in messages:
        try:
            _send(app, task, message.attempt_id, message.queue)
        except (OperationalError, OSError) as error:
            logger.warning("the broker cannot be reached; the reconciler will send the steps again", error=str(error))
            break
        sent += 1
    return sent


def send_profile(app: Celery, profile_id: str, queue: str) -> bool:
    """Announce a requested profile; returns whether the message went out.

    Where it did not, a second request sends it again.
    """
    try:
        _send(app, PROFILE_TASK, profile_id, queue)
    except (OperationalError, OSError) as error:
        logger.warning("the broker cannot be reached; the profile waits to be asked for again", error=str(error))
        return False
    return True


def _send(app: Celery, task: str, row_id: str, queue: str) -> None:
    with tracing.span(f"send {task}", "PRODUCER") as note:
        note(queue=queue, job=row_id)
        app.send_task(
            task,
            args=(row_id,),
            queue=queue,
            headers=tracing.headers(),
            retry=True,
            retry_policy=RETRY,
            ignore_result=True,
        )
