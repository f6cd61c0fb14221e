"""Several API processes on one port, started again when they die; their requests are counted together.

Each has a socket of its own, which this process holds: while one is started again, what was connected to it waits.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
import tempfile
import threading

from warpsmith.service.local.supervisor import ChildSpec, Supervisor
from warpsmith.service.settings import METRICS_DIRECTORY, ServiceSettings
from warpsmith.workers import log

POLL_S = 0.2
STOP = ((signal.SIGTERM, 4.0),)
"""Longer than a process waits for its requests, and shorter than `warpsmith up` waits for this one."""


def serve_together(settings: ServiceSettings, sockets: list[socket.socket]) -> None:
    """Serve in a process for each socket until SIGTERM or SIGINT, then close the sockets."""
    log.configure(settings)
    logger = log.get(__name__)
    stopping = threading.Event()
    for end_signal in (signal.SIGTERM, signal.SIGINT):
        signal.signal(end_signal, lambda *_: stopping.set())
    with tempfile.TemporaryDirectory(prefix="warpsmith-api-") as directory:
        environment = {**os.environ, METRICS_DIRECTORY: directory}
        supervisor = Supervisor(None, lambda text: logger.warning("api.process", text=text))
        try:
            for number, listener in enumerate(sockets, start=1):
                descriptor = listener.fileno()
                command = (sys.executable, "-P", "-m", "warpsmith.service.server.serve", "--fd", str(descriptor))
                supervisor.start(ChildSpec(f"api-{number}", command, environment, STOP, (descriptor,)))
            while not stopping.wait(POLL_S):
                supervisor.poll()
        finally:
            supervisor.stop(*supervisor.names())
            for listener in sockets:
                listener.close()
