"""The consumer of our workers: Celery's, without what our messages never use."""

from __future__ import annotations

from typing import ClassVar

from celery.worker.consumer import Consumer as CeleryConsumer

from warpsmith.workers.queue import poison

UNUSED = "celery.worker.consumer.delayed_delivery:DelayedDelivery"
"""Celery's step that makes 28 queues for messages with a delay, on quorum queues.

None of ours has one: the database knows when a step is due. The step also asks every node of the broker at the start,
for seconds where one is down.
"""


class Consumer(poison.Consumer):
    """A consumer that drops what it cannot read, and makes no queues but those that it serves."""

    class Blueprint(CeleryConsumer.Blueprint):  # type: ignore[misc] # celery's is untyped
        """Celery's steps without `UNUSED`."""

        default_steps: ClassVar[list[str]] = [step for step in CeleryConsumer.Blueprint.default_steps if step != UNUSED]
