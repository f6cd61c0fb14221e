"""Celery's Redis transport, less a way to hang.

Where Redis dies between the delivery of a message and its acknowledgement, kombu (5.7) logs that it could not
acknowledge and goes on counting the message as delivered. With a prefetch of one that is all the credit there is: the
worker then never asks for another message, and never notices that its connection is gone. Here the credit comes back
whatever Redis says; a message that stays unacknowledged in Redis comes again after the visibility timeout, to a claim
that finds its step done.
"""

from __future__ import annotations

from kombu.transport import TRANSPORT_ALIASES, redis, virtual


class QoS(redis.QoS):
    """Acknowledgements of one channel."""

    def ack(self, delivery_tag: str) -> None:
        """Acknowledge; the message's credit is free even where that fails."""
        try:
            super().ack(delivery_tag)  # type: ignore[no-untyped-call] # kombu's
        except BaseException:
            virtual.QoS.ack(self, delivery_tag)  # type: ignore[no-untyped-call]
            raise

    def reject(self, delivery_tag: str, requeue: bool = False) -> None:
        """Reject; the message's credit is free even where that fails."""
        try:
            super().reject(delivery_tag, requeue)  # type: ignore[no-untyped-call]
        except BaseException:
            virtual.QoS.ack(self, delivery_tag)  # type: ignore[no-untyped-call]
            raise


class Channel(redis.Channel):
    """A channel with the acknowledgements above."""

    QoS = QoS


class Transport(redis.Transport):
    """The transport that `broker_transport` names."""

    Channel = Channel


def install() -> None:
    """Have redis://, rediss:// and redis+socket:// URLs mean this transport, in this process."""
    for scheme in ("redis", "rediss"):
        TRANSPORT_ALIASES[scheme] = f"{__name__}:Transport"
