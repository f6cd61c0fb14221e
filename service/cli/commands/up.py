"""`warpsmith up`: runs the whole service on this machine until it is stopped."""

from __future__ import annotations

import os
import signal
import sys
import threading
from typing import Annotated, Any

import typer

from warpsmith.service.cli.options import Json
from warpsmith.service.cli.output import print_json, say, tell
from warpsmith.service.client.errors import FAILED, CommandError
from warpsmith.service.local.home import HomeInUseError
from warpsmith.service.local.launcher import Launcher, StartError
from warpsmith.service.settings import ServiceSettings
from warpsmith.workers.judging import machine

POLL_S = 0.2


def up(
    host: Annotated[str | None, typer.Option(help="Address to bind; other than loopback needs API keys.")] = None,
    port: Annotated[int | None, typer.Option(help="Port to bind; 0 takes a free one.", min=0, max=65535)] = None,
    as_json: Json = False,
) -> None:
    """Start API, broker, workers and reconciler on this machine; Ctrl-C stops them all."""
    given = {name: value for name, value in (("host", host), ("port", port)) if value is not None}
    launcher = Launcher(ServiceSettings().model_copy(update=given), say)
    stop_request = StopRequest()
    try:
        launcher.start(stop_request.is_set)
    except (HomeInUseError, StartError) as error:
        raise CommandError(str(error), FAILED) from None
    try:
        _announce(launcher, as_json)
        while not stop_request.wait(POLL_S):
            launcher.poll()
        say("stopping")
    finally:
        launcher.stop()
    say("stopped")


class StopRequest(threading.Event):
    """Event that SIGINT and SIGTERM set once it is made."""

    def __init__(self) -> None:
        super().__init__()
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._on_signal)

    def _on_signal(self, *_: Any) -> None:
        self.set()


def _announce(launcher: Launcher, as_json: bool) -> None:
    if as_json:
        print_json({"url": launcher.url, "pid": os.getpid(), "home": str(launcher.home), "children": launcher.pids()})
        sys.stdout.flush()
        return
    tell(f"Warpsmith is up at {launcher.url}")
    tell(f"  home      {launcher.home}")
    tell(f"  logs      {launcher.home / 'logs'}")
    tell(f"  processes {', '.join(f'{name} ({pid})' for name, pid in launcher.pids().items())}")
    tell(f"  targets   {', '.join([machine.cpu_target(), *(gpu.target for gpu in machine.gpus())])}")
    tell("Ctrl-C stops it.")
