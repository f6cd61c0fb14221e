"""Messages that are none of ours, or broken: dropped with a line in the log, so that no worker dies of one.

Celery (5.7) takes some errors in reading a message for a lost connection: a message without an id raises KeyError, and
its transports count that among theirs. The worker then connects anew and gets the same message again, for ever. What is
dropped here is only a hint: the step of a message is in the database, and is sent again.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from celery.worker.consumer import Consumer as CeleryConsumer

from warpsmith.workers import log

_ID = re.compile(r"\w{1,64}", re.ASCII)

logger = log.get(__name__)


class Consumer(CeleryConsumer):  # type: ignore[misc] # celery's is untyped
    """A consumer that drops what it cannot read."""

    def create_task_handler(self, *args: Any, **options: Any) -> Callable[[Any], Any]:
        """Make the function that takes each message."""
        take = super().create_task_handler(*args, **options)

        def take_or_drop(message: Any) -> Any:
            try:
                return take(message)
            except (KeyError, TypeError, ValueError, AttributeError, LookupError) as error:
                logger.error("a message that cannot be read was dropped", error=f"{type(error).__name__}: {error}")
                message.reject_log_error(logger, self.connection_errors)

        return take_or_drop


def names_row(row_id: object) -> bool:
    """Check whether a message's argument can be an id; a line in the log says where it cannot."""
    if isinstance(row_id, str) and _ID.fullmatch(row_id):
        return True
    logger.error("a message that names nothing was dropped", found=repr(row_id)[:100], expected="an id")
    return False
