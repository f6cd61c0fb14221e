"""Connections to the service of a command, which starts one for itself where none runs."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from warpsmith.service.cli.output import say
from warpsmith.service.client.errors import CommandError, NoServiceOnHomeError, ProblemError, ServiceUnreachableError
from warpsmith.service.local.home import find_running_service
from warpsmith.service.settings import ServiceSettings
from warpsmith.workers.judge.machine.process_control import die_with_parent

if TYPE_CHECKING:
    from warpsmith.service.client.http import Client

START_TIMEOUT_S = 150.0
STOP_TIMEOUT_S = 30.0


def service_url(url: str | None) -> str:
    """Return `url` where given, else the running launcher's URL, else that of the settings.

    Raises NoServiceOnHomeError where a home is named without an address, and no launcher runs on it: what answers at
    the default address is another home's.
    """
    if url is not None:
        return url
    settings = ServiceSettings()
    home = settings.home.expanduser().resolve()
    running = find_running_service(home)
    if running:
        return running["url"]
    if "home" in settings.model_fields_set and not settings.model_fields_set & {"host", "port"}:
        raise NoServiceOnHomeError(home)
    return f"http://{settings.host}:{settings.port}"


@contextmanager
def connected(url: str | None, key: str | None) -> Iterator[Client]:
    """Open a client of the running service."""
    with _make_client(url, key) as client:
        yield client


@contextmanager
def connected_or_embedded(
    url: str | None, key: str | None, *, may_start: bool = True, must_work: bool = True
) -> Iterator[tuple[Client, bool]]:
    """Open a client of the running service, or of one started here.

    Yields the client, and whether the service was started here; such a one is stopped at the end. A URL that was
    given and does not answer is an error: work meant for one service must not end up on another. Without `may_start`
    no service is started. With `must_work` a service that answers but is not ready is an error; without it, it only
    has to answer.
    """
    try:
        running = _make_client(url, key)
    except NoServiceOnHomeError:
        if not may_start:
            raise
    else:
        with running as client:
            answers = True
            try:
                client.ready()
            except ServiceUnreachableError:
                if url is not None or not may_start:
                    raise
                answers = False
            except ProblemError as error:
                if must_work:
                    raise CommandError(f"the service at {client.url} is not ready: {error}") from None
            if answers:
                yield client, False
                return
    with embedded_service() as own_url, _make_client(own_url, key) as client:
        yield client, True


def _make_client(url: str | None, key: str | None) -> Client:
    """Return a client of the service at `service_url`. Raises NoServiceOnHomeError."""
    # Some commands ask a service for some of their options alone, and work without what a client needs. It comes before
    # the address: where the extra lacks, that is what is said.
    from warpsmith.service.client.http import Client  # noqa: PLC0415

    return Client(service_url(url), key)


@contextmanager
def embedded_service() -> Iterator[str]:
    """Run a `warpsmith up` of this command's own on a free port; yields its URL."""
    home = ServiceSettings().home.expanduser().resolve()
    log_path = home / "logs" / "embedded.log"
    log_path.parent.mkdir(parents=True, exist_ok=True)
    say("no service runs here: starting one for this command")
    with log_path.open("ab") as log:
        start_of_log = log.tell()
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "warpsmith.service.cli", "up", "--host", "127.0.0.1", "--port", "0", "--json"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=log,
            start_new_session=True,
            preexec_fn=partial(die_with_parent, os.getpid(), signal.SIGTERM),  # noqa: PLW1509 - nothing else runs yet
        )
    try:
        yield _await_url(process, log_path, start_of_log)
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        if process.stdout is not None:
            process.stdout.close()


def _await_url(process: subprocess.Popen[bytes], log_path: Path, start_of_log: int) -> str:
    """Wait for the document that `warpsmith up --json` prints once it is ready."""
    assert process.stdout is not None
    deadline = time.monotonic() + START_TIMEOUT_S
    text = b""
    while time.monotonic() < deadline:
        if select.select([process.stdout], [], [], 0.2)[0]:
            chunk = os.read(process.stdout.fileno(), 65536)
            text += chunk
            if not chunk:
                break
            try:
                document = json.loads(text)
            except json.JSONDecodeError:
                continue
            if "error" in document:
                raise CommandError(f"the service could not be started: {document['error']['message']}")
            return str(document["url"])
    with log_path.open("rb") as log:
        log.seek(start_of_log)
        output = log.read().decode(errors="replace").strip()
    raise CommandError(f"the service could not be started:\n{output or f'no output within {START_TIMEOUT_S:g} s'}")
