"""Whether the broker answers, and its name without passwords; it may be several nodes of one cluster."""

from __future__ import annotations

from typing import Any, NamedTuple

from celery import Celery
from kombu.connection import Connection
from kombu.exceptions import KombuError

PAUSE_S = 0.2


class Reached(NamedTuple):
    """What a try found: the broker's name with passwords masked, and the error where no node answered."""

    name: str
    error: Exception | None


def mask_passwords(connection: Any) -> str:
    """Return the addresses of a connection with every password masked, joined by `;`."""
    if len(connection.alt) < 2:
        return str(connection.as_uri())
    return ";".join(str(Connection(address).as_uri()) for address in connection.alt)  # type: ignore[no-untyped-call]


def reach_broker(app: Celery, timeout_s: float, tries: int = 2) -> Reached:
    """Try to connect, at most `tries` times to each node, within about `timeout_s`.

    Of several nodes each has its part of the time: one that is cut off does not keep the others from being tried.
    """
    connection: Any = app.connection_for_write(connect_timeout=timeout_s)
    nodes = max(1, len(connection.alt))
    if nodes > 1:  # RabbitMQ, whose transport goes by this option
        connection.transport_options = {**connection.transport_options, "connect_timeout": timeout_s / nodes}
    try:
        connection.ensure_connection(
            max_retries=tries * nodes - 1, interval_start=0, interval_step=PAUSE_S, timeout=timeout_s
        )
    except (KombuError, OSError) as error:
        return Reached(mask_passwords(connection), error)
    finally:
        connection.release()
    return Reached(mask_passwords(connection), None)
