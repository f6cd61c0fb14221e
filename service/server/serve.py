"""The API process, on its own or a parent's socket.

Start it with `python -m warpsmith.service.server.serve`.
"""

from __future__ import annotations

import argparse
import gc
import signal
import socket

import uvicorn

from warpsmith.service.local.connections import ConnectionLimits, make_protocol
from warpsmith.service.server.app import create_app
from warpsmith.service.settings import ServiceSettings

SHUTDOWN_GRACE_S = 3
LONGEST_HEAD = 32 * 1024
"""Bytes of a request's line and headers."""


def main() -> None:
    """Serve until SIGTERM or SIGINT."""
    parser = argparse.ArgumentParser(prog="python -m warpsmith.service.server.serve", description=__doc__)
    parser.add_argument("--fd", type=int, help="a listening socket inherited from the parent")
    arguments = parser.parse_args()
    settings = ServiceSettings()
    config = uvicorn.Config(
        create_app(settings),
        host=settings.host,
        port=settings.port,
        log_config=None,  # the application configures logging
        server_header=False,
        timeout_graceful_shutdown=SHUTDOWN_GRACE_S,  # open event streams do not hold up a stop
        http=make_protocol(
            ConnectionLimits(
                head_s=settings.head_timeout_s,
                answer_s=settings.answer_timeout_s,
                connections=settings.max_connections,
                connections_per_peer=settings.max_connections_per_peer,
            )
        ),
        h11_max_incomplete_event_size=LONGEST_HEAD,
    )
    sockets = None if arguments.fd is None else [socket.socket(fileno=arguments.fd)]
    for number in (signal.SIGTERM, signal.SIGINT):
        # After its shutdown uvicorn raises the signal again for the earlier handler; a clean stop is no failure.
        signal.signal(number, lambda *_: None)
    _spare_program()
    uvicorn.Server(config).run(sockets=sockets)


def _spare_program() -> None:
    """Keep the program itself out of garbage collection: to look through all of it held a request up for 0.1 s."""
    gc.collect()
    gc.freeze()


if __name__ == "__main__":
    main()
