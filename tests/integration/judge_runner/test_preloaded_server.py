"""A preloaded server with children that do as they are told: how their ends are told, and what ends them."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.judging import alive
from tests.support.waiting import wait_until
from warpsmith import IMPORT_ROOT
from warpsmith.workers.judge.machine.process_control import children, own_children
from warpsmith.workers.judge.preloaded.client import Child, ForkServerDied, PreloadedServer

MODULE = """
import os, subprocess, threading, time
from warpsmith.workers.judge.preloaded import server

def become(request, fds):
    if "threads" in request:
        print(server.threads(), flush=True)
    if "starts" in request:
        subprocess.Popen(["sleep", request["starts"]], start_new_session=True)
    time.sleep(request.get("sleeps", 0))
    return request.get("code", 0)

if __name__ == "__main__":
    control, ability = server.begin()
    if os.environ.get("THREADS"):
        threading.Thread(target=time.sleep, args=(600,), daemon=True).start()
    server.serve(control, ability, become)
"""

Fork = Callable[..., Child]


def start(directory: Path, **variables: str) -> PreloadedServer:
    (directory / "obedient.py").write_text(MODULE)
    path = os.pathsep.join([str(IMPORT_ROOT), str(directory)])
    environment = {"PATH": os.environ.get("PATH", os.defpath), "PYTHONPATH": path, **variables}
    return PreloadedServer("obedient", environment, directory)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[PreloadedServer]:
    server = start(tmp_path)
    yield server
    server.close()


@pytest.fixture
def fork(server: PreloadedServer, tmp_path: Path) -> Iterator[Fork]:
    with (tmp_path / "output").open("wb") as output:

        def made(**request: Any) -> Child:
            return server.fork({"directory": str(tmp_path), **request}, output.fileno())

        yield made


def running(mark: str) -> list[str]:
    found = []
    for entry in filter(str.isdigit, os.listdir("/proc")):
        try:
            if mark in Path(f"/proc/{entry}/cmdline").read_text():
                found.append(entry)
        except OSError:
            continue
    return found


def test_a_childs_exit_code_is_told_and_kept(fork: Fork, tmp_path: Path) -> None:
    child = fork(code=7, threads=True)
    assert child.exit_code(30.0) == 7
    assert child.exit_code(0.0) == 7
    assert child.kill() == 7
    child.close()
    assert (tmp_path / "output").read_text() == "1\n"


def test_the_order_to_kill_may_cross_the_childs_own_end(fork: Fork) -> None:
    for number in range(40):
        child = fork(sleeps=0.001 * (number % 8), code=3)
        time.sleep(0.001 * (number % 5))
        assert child.kill() in (3, -signal.SIGKILL)
        child.close()


def test_a_killed_child_takes_what_it_started_with_it(server: PreloadedServer, fork: Fork) -> None:
    mark = f"3518.{os.getpid()}"
    child = fork(starts=mark, sleeps=600)
    wait_until(lambda: bool(running(mark)))
    assert child.exit_code(0.1) is None
    assert child.kill() == -signal.SIGKILL
    child.close()
    assert not running(mark)
    assert children(server.pid) == []


def test_to_close_a_child_kills_it_and_leaves_the_others(fork: Fork) -> None:
    first, second = fork(sleeps=600), fork(sleeps=600)
    first.close()
    wait_until(lambda: not alive(first.pid))
    assert alive(second.pid)
    assert second.kill() == -signal.SIGKILL
    second.close()


def test_the_end_of_the_server_is_the_end_of_its_children(server: PreloadedServer, fork: Fork) -> None:
    child = fork(sleeps=600)
    os.kill(server.pid, signal.SIGKILL)
    with pytest.raises(ForkServerDied):
        child.kill()
    with pytest.raises(ForkServerDied):
        fork()
    child.close()
    wait_until(lambda: not alive(child.pid))
    server.close()
    assert server.pid not in own_children


def test_a_server_with_a_second_thread_forks_nothing(tmp_path: Path) -> None:
    server = start(tmp_path, THREADS="2")
    try:
        with pytest.raises(RuntimeError, match="the obedient has 2 threads, expected 1"):
            server.ready()
    finally:
        server.close()
