"""`warpsmith worker`: judge workers on this host, for the service here or one elsewhere."""

from __future__ import annotations

import os
import re
import signal
import socket
import sys
import time
from pathlib import Path
from typing import Annotated, Any

import typer

from warpsmith.service.cli.options import Json
from warpsmith.service.cli.output import print_json, say
from warpsmith.service.client.errors import FAILED, CommandError, misuse
from warpsmith.service.local.joining import check_database, check_url, join
from warpsmith.service.local.launcher import SECRETS, StartError, find_broker_fault
from warpsmith.service.local.worker_host import Device, WorkerHost, choose_devices, clear_environment
from warpsmith.workers.judging import machine
from warpsmith.workers.settings import Settings

POLL_S = 0.2
TOKEN_VARIABLE = "WARPSMITH_JOIN_TOKEN"  # noqa: S105 - the name of the variable
HOST_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


def worker(
    gpu: Annotated[
        str, typer.Option(help="all: each GPU and MIG slice; none: the processor; or some, as 0,1 or by UUID.")
    ] = "all",
    url: Annotated[
        str | None,
        typer.Option("--join", metavar="URL", help="A service on another host; left out: the settings here."),
    ] = None,
    token_file: Annotated[
        Path | None, typer.Option(help="File with the token of an invitation; - reads it from standard input.")
    ] = None,
    token_env: Annotated[str, typer.Option(help="Variable with that token.")] = TOKEN_VARIABLE,
    ca: Annotated[
        Path | None,
        typer.Option(help="PEM file of the authorities that sign the certificates of API, broker and database."),
    ] = None,
    allow_http: Annotated[bool, typer.Option("--allow-http", help="Join over http://, on a network of yours.")] = False,
    name: Annotated[str | None, typer.Option(help="This host's name in lists; by default its host name.")] = None,
    as_json: Json = False,
) -> None:
    """Run a judge worker for each device of this host, until they are drained.

    SIGTERM or Ctrl-C drains: each ends what it has in hand and takes nothing more. A second one stops at once.
    """
    host = socket.gethostname() if name is None else name
    if HOST_NAME.fullmatch(host) is None:
        misuse("--name", host, "1 to 64 letters, digits, dots, dashes and underscores")
    token = _read_token(token_file, token_env)
    devices = _choose(gpu)
    if ca is not None and not ca.is_file():
        misuse("--ca", str(ca), "a PEM file")
    settings = Settings()
    environment = clear_environment(os.environ, (*SECRETS, "WARPSMITH_API_KEY", token_env))
    if ca is not None:
        settings = settings.model_copy(update={"tls_ca": ca.resolve()})
        environment["WARPSMITH_TLS_CA"] = str(ca.resolve())
    if url is not None:
        check_url(url, allow_http=allow_http)
        joined = join(url, token, host, settings.home.expanduser().resolve(), ca)
        settings = settings.model_copy(update={"broker_url": joined.broker_url, "database_url": joined.database_url})
        environment |= joined.environment
    check_database(settings)
    fault = find_broker_fault(settings)
    if fault is not None:
        raise CommandError(f"broker: {fault}; expected the service's broker: is its port open to this host?")
    _run(WorkerHost(settings, environment, devices, host, say), as_json)


def _choose(gpu: str) -> list[Device]:
    try:
        devices = choose_devices(gpu, [] if gpu == "none" else machine.gpus())
    except ValueError as error:
        misuse("--gpu", gpu, str(error))
    missing = machine.missing_for_judge()
    if gpu != "none" and machine.installed("torch") and machine.torch_cuda() is None:
        missing.append("torch is built without CUDA: install torch's build for CUDA")
    if missing:
        raise CommandError("\n".join(["this host cannot judge:", *missing]))
    return devices


def _read_token(file: Path | None, variable: str) -> str | None:
    if file is None:
        return os.environ.get(variable) or None
    try:
        text = sys.stdin.read() if str(file) == "-" else file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        misuse("--token-file", str(file), f"a file with the token ({error})")
    return text.strip() or None


class _Signals:
    """Counts SIGTERM and SIGINT from when it is made."""

    def __init__(self) -> None:
        self.count = 0
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._on_signal)

    def _on_signal(self, *_: Any) -> None:
        self.count += 1


def _run(workers: WorkerHost, as_json: bool) -> None:
    signals = _Signals()
    drains = False
    try:
        workers.start()
        if as_json:
            print_json({"pid": os.getpid(), "workers": workers.pids()})
        while workers.poll() and signals.count < 2:
            if signals.count and not drains:
                drains = True
                say("draining: steps in hand are finished; a second signal stops at once")
                workers.drain()
            time.sleep(POLL_S)
    except StartError as error:
        raise CommandError(str(error), FAILED) from None
    finally:
        workers.stop()
    say("stopped" if signals.count > 1 else "drained: every worker has ended")
