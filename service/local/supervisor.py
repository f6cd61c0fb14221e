"""Supervisor of child processes: starts, restarts with a bounded backoff, stops in order."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import BinaryIO

from warpsmith.workers.judge.machine.process_control import die_with_parent

FIRST_BACKOFF_S = 0.5
LONGEST_BACKOFF_S = 30.0
STEADY_AFTER_S = 60.0
LOG_KEPT_BYTES = 5_000_000
LOG_TAIL_BYTES = 2_000


@dataclass(frozen=True)
class ChildSpec:
    """One child. `stop`: the signals that end it, each with its grace in seconds; then SIGKILL.

    `may_end`: where it ends with exit code 0 it is done, and is not started again.
    """

    name: str
    command: tuple[str, ...]
    environment: Mapping[str, str]
    stop: tuple[tuple[signal.Signals, float], ...] = ((signal.SIGTERM, 5.0),)
    pass_fds: tuple[int, ...] = ()
    may_end: bool = False


@dataclass
class _Child:
    spec: ChildSpec
    process: subprocess.Popen[bytes]
    started_at: float
    failures: int = 0
    restart_at: float | None = None
    ended: bool = False


@dataclass
class Supervisor:
    """Keeps children alive.

    Use it from the main thread alone: a child dies with the *thread* that started it. Without `log_directory` they
    write where this process does.
    """

    log_directory: Path | None
    report: Callable[[str], None]
    clock: Callable[[], float] = time.monotonic
    _children: dict[str, _Child] = field(default_factory=dict)
    _ending: bool = False

    def start(self, spec: ChildSpec) -> None:
        """Start a child in its own session; its output goes to `<log_directory>/<name>.log`, where there is one."""
        self._children[spec.name] = _Child(spec, self._spawn(spec), self.clock())

    def poll(self) -> None:
        """Plan a restart of children that died; restart those after their backoff."""
        for child in self._children.values():
            if child.ended:
                continue
            if child.restart_at is None and child.process.poll() is not None:
                done = child.spec.may_end and child.process.returncode == 0
                self._note_end(child) if done or self._ending else self._plan_restart(child)
            if child.restart_at is not None and self.clock() >= child.restart_at:
                child.process = self._spawn(child.spec)
                child.started_at = self.clock()
                child.restart_at = None

    def end(self, end_signal: signal.Signals) -> None:
        """Send the signal to every child; none is started again from now on. `poll` notes those that have ended."""
        self._ending = True
        for child in self._children.values():
            if child.restart_at is not None:
                child.restart_at, child.ended = None, True
            elif child.process.poll() is None:
                child.process.send_signal(end_signal)

    def has_ended(self) -> bool:
        """Check whether every child is done."""
        return all(child.ended for child in self._children.values())

    def failures(self, name: str) -> int:
        """Return how often the child has died in a row."""
        return self._children[name].failures

    def names(self) -> tuple[str, ...]:
        """Return the names of the children, in the order of starting."""
        return tuple(self._children)

    def pids(self) -> dict[str, int]:
        """Return the process id of each child that runs now."""
        return {name: child.process.pid for name, child in self._children.items() if child.process.poll() is None}

    def log_tail(self, name: str) -> str:
        """Read the last lines of a child's log."""
        path = self.log_path(name)
        if path is None or not path.exists():
            return ""
        with path.open("rb") as log:
            log.seek(max(0, path.stat().st_size - LOG_TAIL_BYTES))
            return log.read().decode(errors="replace").strip()

    def log_path(self, name: str) -> Path | None:
        """Return the path of the child's log; None where it has none of its own."""
        return None if self.log_directory is None else self.log_directory / f"{name}.log"

    def stop(self, *names: str) -> None:
        """End and forget the named children together.

        They get their own signals, then their process groups get SIGKILL.
        """
        children = [self._children.pop(name) for name in names if name in self._children]
        stages = max((len(child.spec.stop) for child in children), default=0)
        for stage in range(stages):
            graces = [0.0]
            for child in children:
                if child.process.poll() is None and stage < len(child.spec.stop):
                    stop_signal, grace_s = child.spec.stop[stage]
                    child.process.send_signal(stop_signal)
                    graces.append(grace_s)
            self._wait([child.process for child in children], max(graces))
        for child in children:
            # The group too: a worker that ended may have left processes of its own behind.
            with suppress(ProcessLookupError):
                os.killpg(child.process.pid, signal.SIGKILL)
            child.process.wait()

    def _note_end(self, child: _Child) -> None:
        child.ended = True
        with suppress(ProcessLookupError):
            os.killpg(child.process.pid, signal.SIGKILL)
        self.report(f"{child.spec.name} has ended ({describe_exit(child.process.returncode)})")

    def _plan_restart(self, child: _Child) -> None:
        if self.clock() - child.started_at >= STEADY_AFTER_S:
            child.failures = 0
        delay_s = min(FIRST_BACKOFF_S * 2**child.failures, LONGEST_BACKOFF_S)
        child.failures += 1
        child.restart_at = self.clock() + delay_s
        with suppress(ProcessLookupError):
            os.killpg(child.process.pid, signal.SIGKILL)
        path = self.log_path(child.spec.name)
        self.report(
            f"{child.spec.name} died ({describe_exit(child.process.returncode)}); restart in {delay_s:g} s"
            f"{'' if path is None else f'; its log: {path}'}"
        )

    def _spawn(self, spec: ChildSpec) -> subprocess.Popen[bytes]:
        with self._open_log(spec.name) as log:
            return subprocess.Popen(
                spec.command,
                env=dict(spec.environment),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,  # Ctrl-C reaches the supervisor alone, which stops the children in order
                pass_fds=spec.pass_fds,
                preexec_fn=partial(die_with_parent, os.getpid()),  # noqa: PLW1509 - the supervisor has no threads
            )

    @contextmanager
    def _open_log(self, name: str) -> Iterator[BinaryIO | None]:
        path = self.log_path(name)
        if path is None:
            yield None
            return
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.exists() and path.stat().st_size > LOG_KEPT_BYTES:
            path.replace(path.with_suffix(".log.1"))
        with path.open("ab") as log:
            yield log

    @staticmethod
    def _wait(processes: list[subprocess.Popen[bytes]], grace_s: float) -> None:
        deadline = time.monotonic() + grace_s
        for process in processes:
            with suppress(subprocess.TimeoutExpired):
                process.wait(max(0.0, deadline - time.monotonic()))


def describe_exit(returncode: int) -> str:
    """Describe a return code in words."""
    if returncode >= 0:
        return f"exit code {returncode}"
    try:
        return f"killed by {signal.Signals(-returncode).name}"
    except ValueError:
        return f"killed by signal {-returncode}"
