"""Several API processes on one port: they share its connections, their metrics are one, a dead one comes back."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import httpx
import psutil
import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.services import die_with_parent
from tests.support.launching import PATIENCE_S, environment, family, living, up
from tests.support.waiting import wait_until
from warpsmith.kernels_db.store.db import Database
from warpsmith.service.local.listening import listen, listen_together

PROCESSES, CALLERS = 2, 40


@pytest.fixture
def api(tmp_path: Path) -> Iterator[tuple[psutil.Process, str]]:
    """The parent of the processes, and their URL."""
    database = f"sqlite:///{tmp_path / 'warpsmith.db'}"
    Database(database).upgrade()
    with ExitStack() as stack, (tmp_path / "api.log").open("wb") as log:
        sockets = [stack.enter_context(one) for one in listen_together("127.0.0.1", 0, PROCESSES)]
        descriptors = [one.fileno() for one in sockets]
        process = subprocess.Popen(
            [sys.executable, "-m", "warpsmith.service.server.serve"] + [f"--fd={one}" for one in descriptors],
            env=environment(tmp_path, WARPSMITH_DATABASE_URL=database),
            pass_fds=descriptors,
            stdout=log,
            stderr=log,
            preexec_fn=die_with_parent,  # noqa: PLW1509 - one prctl call
        )
        try:
            yield psutil.Process(process.pid), f"http://127.0.0.1:{sockets[0].getsockname()[1]}"
        finally:
            process.terminate()
            assert process.wait(PATIENCE_S) == 0


def list_connected(process: psutil.Process) -> int:
    """How many connections a process holds."""
    return sum(one.status == psutil.CONN_ESTABLISHED for one in process.net_connections("tcp"))


def read_metrics(url: str) -> tuple[float, set[int]]:
    """How many requests for ops were counted, and the processes that there are."""
    families = {
        family.name: family.samples
        for family in text_string_to_metric_families(httpx.get(f"{url}/metrics", timeout=PATIENCE_S).text)
    }
    counted = families["warpsmith_http_request_seconds"]
    count = sum(one.value for one in counted if one.name.endswith("_count") and one.labels["route"] == "/v1/ops")
    return count, {int(one.labels["process"]) for one in families["process_open_fds"]}


@pytest.mark.nightly  # starts three processes of the whole program
def test_they_share_connections_and_metrics_and_come_back(api: tuple[psutil.Process, str]) -> None:
    parent, url = api
    with ExitStack() as stack:
        # As many connections held open: that the kernel gives all of them to one process has odds of 1 in 2^39.
        callers = [stack.enter_context(httpx.Client(base_url=url, timeout=PATIENCE_S)) for _ in range(CALLERS)]
        for caller in callers:
            assert caller.get("/v1/ops").status_code == 200
        children = parent.children()
        assert len(children) == PROCESSES
        assert all(list_connected(child) > 0 for child in children)
    pids = {child.pid for child in children}
    assert read_metrics(url) == (CALLERS, pids)
    killed = children[0]
    killed.send_signal(signal.SIGKILL)
    wait_until(lambda: len({child.pid for child in parent.children()} - {killed.pid}) == PROCESSES, PATIENCE_S)
    assert httpx.get(f"{url}/v1/ops", timeout=PATIENCE_S).status_code == 200
    count, now = read_metrics(url)
    assert count == CALLERS + 1, "what a dead process had counted still counts"
    assert len(now) == PROCESSES
    assert killed.pid not in now


@pytest.mark.nightly
def test_warpsmith_up_starts_as_many_as_it_is_told(tmp_path: Path) -> None:
    with up(tmp_path / "home", WARPSMITH_API_PROCESSES=str(PROCESSES)) as (process, document):
        assert len(psutil.Process(document["children"]["api"]).children()) == PROCESSES
        assert httpx.get(f"{document['url']}/readyz", timeout=PATIENCE_S).status_code == 200
        everyone = family(process.pid)
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE_S) == 0
        assert living(everyone) == []


@pytest.mark.parametrize("shared", [False, True])
def test_an_address_where_another_listens_is_not_shared(shared: bool) -> None:
    """Of its connections the other would get a part, whoever it is."""
    with listen("127.0.0.1", 0, shared=shared) as other, pytest.raises(OSError, match="in use"):
        listen_together("127.0.0.1", other.getsockname()[1], PROCESSES)


def test_a_port_that_is_taken_is_told(tmp_path: Path) -> None:
    with listen("127.0.0.1", 0) as other:
        port = str(other.getsockname()[1])
        settings = environment(tmp_path, WARPSMITH_PORT=port, WARPSMITH_API_PROCESSES=str(PROCESSES))
        command = [sys.executable, "-m", "warpsmith.service.server.serve"]
        ended = subprocess.run(command, env=settings, check=False, capture_output=True, text=True, timeout=PATIENCE_S)
    assert ended.returncode == 1
    assert ended.stderr.startswith(f"port: found 127.0.0.1:{port}, which cannot be bound")


def test_together_they_listen_at_one_address() -> None:
    with ExitStack() as stack:
        opened = [stack.enter_context(one) for one in listen_together("127.0.0.1", 0, 3)]
        assert len({one.getsockname() for one in opened}) == 1
        assert all(one.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN) for one in opened)
