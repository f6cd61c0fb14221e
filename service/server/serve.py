"""The API process, or several on one port, on their own or a parent's sockets.

Start it with `python -m warpsmith.service.server.serve`.
"""

from __future__ import annotations

import argparse
import gc
import math
import signal
import socket
from typing import TYPE_CHECKING

from warpsmith.service.local.listening import listen_together
from warpsmith.service.server.serving_together import serve_together
from warpsmith.service.settings import ServiceSettings
from warpsmith.workers.judge.machine.garbage import imports_kept
from warpsmith.workers.settings_errors import told

if TYPE_CHECKING:
    import uvicorn

SHUTDOWN_GRACE_S = 3
LONGEST_HEAD = 32 * 1024
"""Bytes of a request's line and headers."""


def main() -> None:
    """Serve until SIGTERM or SIGINT."""
    parser = argparse.ArgumentParser(prog="python -m warpsmith.service.server.serve", description=__doc__)
    parser.add_argument(
        "--fd", type=int, action="append", help="a listening socket inherited from the parent; one for each process"
    )
    arguments = parser.parse_args()
    with told():
        settings = ServiceSettings()
    sockets = [socket.socket(fileno=descriptor) for descriptor in arguments.fd or ()]
    if not sockets and settings.api_processes > 1:
        try:
            sockets = listen_together(settings.host, settings.port, settings.api_processes)
        except OSError as error:
            found = f"{settings.host}:{settings.port}, which cannot be bound ({error.strerror or error})"
            parser.exit(1, f"port: found {found}; expected a free port (WARPSMITH_PORT)\n")
    if len(sockets) > 1:
        serve_together(settings, sockets)
    else:
        serve(settings, sockets)


def serve(settings: ServiceSettings, sockets: list[socket.socket]) -> None:
    """Serve in this process, on its own socket where none is given."""
    with imports_kept():
        import uvicorn  # noqa: PLC0415 - see `make_config`

        config = make_config(settings)
    for number in (signal.SIGTERM, signal.SIGINT):
        # After its shutdown uvicorn raises the signal again for the earlier handler; a clean stop is no failure.
        signal.signal(number, lambda *_: None)
    _spare_program()
    uvicorn.Server(config).run(sockets=sockets or None)


def make_config(settings: ServiceSettings) -> uvicorn.Config:
    """Configure the server of the API, with its limits of connections."""
    # The parent of several processes needs none of these, which are most of the program.
    import uvicorn  # noqa: PLC0415

    from warpsmith.service.local.connections import LOOP, ConnectionLimits, make_protocol  # noqa: PLC0415
    from warpsmith.service.server.app import create_app  # noqa: PLC0415

    return uvicorn.Config(
        create_app(settings),
        host=settings.host,
        port=settings.port,
        log_config=None,  # the application configures logging
        server_header=False,
        timeout_graceful_shutdown=SHUTDOWN_GRACE_S,  # open event streams do not hold up a stop
        timeout_keep_alive=math.ceil(settings.keep_alive_s),
        loop=LOOP,
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


def _spare_program() -> None:
    """Keep the program itself out of garbage collection: to look through all of it held a request up for 0.1 s."""
    gc.collect()
    gc.freeze()


if __name__ == "__main__":
    main()
