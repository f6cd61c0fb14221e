"""Children are restarted when they die, stopped in order, and die with whoever started them: with real processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.support.waiting import wait_until
from warpsmith.service.local import supervisor as supervisor_module
from warpsmith.service.local.supervisor import ChildSpec, Supervisor, describe_exit

SLEEPER = (sys.executable, "-c", "import time; time.sleep(600)")
STUBBORN = (
    sys.executable,
    "-c",
    "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('deaf', flush=True); time.sleep(600)",
)


def gone(pid: int) -> bool:
    """Dead, or a zombie that its new parent has yet to reap."""
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


@pytest.fixture
def said() -> list[str]:
    return []


@pytest.fixture
def supervisor(tmp_path: Path, said: list[str], monkeypatch: pytest.MonkeyPatch) -> Iterator[Supervisor]:
    monkeypatch.setattr(supervisor_module, "FIRST_BACKOFF_S", 0.05)
    supervisor = Supervisor(tmp_path / "logs", said.append)
    yield supervisor
    supervisor.stop(*supervisor.names())


def spec(name: str, command: tuple[str, ...] = SLEEPER, **options: object) -> ChildSpec:
    return ChildSpec(name, command, dict(os.environ), **options)  # type: ignore[arg-type]


def test_a_child_that_dies_is_started_again_and_reported(supervisor: Supervisor, said: list[str]) -> None:
    supervisor.start(spec("sleeper"))
    first = supervisor.pids()["sleeper"]
    os.kill(first, signal.SIGKILL)
    wait_until(lambda: supervisor.pids().get("sleeper", first) != first, meanwhile=supervisor.poll)
    assert len(said) == 1
    assert "sleeper died (killed by SIGKILL); restart in 0.05 s" in said[0]
    assert "sleeper.log" in said[0]


def test_restarts_come_ever_later_up_to_a_bound(tmp_path: Path, said: list[str]) -> None:
    now = [0.0]
    supervisor = Supervisor(tmp_path, said.append, clock=lambda: now[0])
    supervisor.start(spec("broken", (sys.executable, "-c", "print('no use'); raise SystemExit(3)")))
    for _ in range(9):
        deaths = len(said)

        def died(deaths: int = deaths) -> bool:
            return len(said) > deaths

        wait_until(died, meanwhile=supervisor.poll)
        now[0] += 31.0
    supervisor.stop("broken")
    delays = [float(line.split("restart in ")[1].split(" s")[0]) for line in said]
    assert delays[:7] == [0.5, 1, 2, 4, 8, 16, 30]
    assert set(delays[7:]) <= {30.0}
    assert "exit code 3" in said[0]
    assert "no use" in supervisor.log_tail("broken")


def test_a_child_that_lived_long_starts_anew_with_the_shortest_delay(tmp_path: Path, said: list[str]) -> None:
    now = [0.0]
    supervisor = Supervisor(tmp_path, said.append, clock=lambda: now[0])
    supervisor.start(spec("sleeper"))
    for _ in range(2):
        now[0] += supervisor_module.STEADY_AFTER_S
        os.kill(supervisor.pids()["sleeper"], signal.SIGKILL)
        wait_until(lambda: "sleeper" not in supervisor.pids())
        supervisor.poll()
        now[0] += 1
        supervisor.poll()
    supervisor.stop("sleeper")
    assert ["restart in 0.5 s" in line for line in said] == [True, True]


def test_a_deaf_child_is_killed_after_its_grace(supervisor: Supervisor) -> None:
    supervisor.start(spec("deaf", STUBBORN, stop=((signal.SIGTERM, 0.2),)))
    wait_until(lambda: "deaf" in supervisor.log_tail("deaf"))
    pid = supervisor.pids()["deaf"]
    supervisor.stop("deaf")
    assert gone(pid)
    assert supervisor.names() == ()


def test_stopping_takes_grandchildren_too(supervisor: Supervisor) -> None:
    shell = ("sh", "-c", "sleep 600 & echo $!; exec sleep 600")
    supervisor.start(spec("shell", shell))
    wait_until(lambda: supervisor.log_tail("shell").isdigit())
    grandchild = int(supervisor.log_tail("shell"))
    supervisor.stop("shell")
    wait_until(lambda: gone(grandchild))


def test_stopping_one_leaves_the_others(supervisor: Supervisor) -> None:
    supervisor.start(spec("one"))
    supervisor.start(spec("two"))
    supervisor.stop("one", "no such child")
    supervisor.poll()
    assert set(supervisor.pids()) == {"two"}


def test_children_die_with_a_killed_parent(tmp_path: Path) -> None:
    program = f"""
import os, sys, time
from pathlib import Path
from warpsmith.service.local.supervisor import ChildSpec, Supervisor
supervisor = Supervisor(Path({str(tmp_path)!r}), print)
supervisor.start(ChildSpec("sleeper", {SLEEPER!r}, dict(os.environ)))
print(supervisor.pids()["sleeper"], flush=True)
time.sleep(600)
"""
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        assert not gone(child)
        parent.kill()
    wait_until(lambda: gone(child))


def test_a_long_log_is_put_aside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervisor_module, "LOG_KEPT_BYTES", 10)
    (tmp_path / "sleeper.log").write_text("x" * 11)
    supervisor = Supervisor(tmp_path, print)
    supervisor.start(spec("sleeper"))
    supervisor.stop("sleeper")
    assert (tmp_path / "sleeper.log.1").read_text() == "x" * 11
    assert (tmp_path / "sleeper.log").read_text() == ""


def test_exits_in_words() -> None:
    assert describe_exit(0) == "exit code 0"
    assert describe_exit(-9) == "killed by SIGKILL"
    assert describe_exit(-1000) == "killed by signal 1000"
