"""The processes of the service under test, started again as a supervisor would."""

from __future__ import annotations

import os
import platform
import random
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from benchmarks.chaos.services import family, free_port, signal_all
from warpsmith.workers.queue_names import MODEL_QUEUE, judge_queue

REPOSITORY = Path(__file__).parents[2]
TARGET = f"cpu:{platform.machine()}"
LEASE_S = 2.0
STOP_S = 10.0
REVIVE_AFTER_S = 0.5

FAST = {
    "WARPSMITH_LEASE_S": str(LEASE_S),
    "WARPSMITH_RECONCILE_INTERVAL_S": "0.3",
    "WARPSMITH_RESEND_AFTER_S": "1.0",
    # A step may meet many faults; that it is given up after a few is not what is measured.
    "WARPSMITH_MAX_TRIES": "1000",
    # Pools that were sent wait for as long as faults last.
    "WARPSMITH_MAX_OPEN_IMPORTS": "1000",
    "WARPSMITH_ATTACK_S": "0",
    "WARPSMITH_REVERIFY_INTERVAL_S": "5",
    "WARPSMITH_DATABASE_TIMEOUT_S": "3",
}
"""Settings under which what was lost comes back within seconds."""

WORKERS = ("model-1", "model-2", "judge-1", "judge-2")
RECONCILERS = ("reconciler-1", "reconciler-2")
BEATS = ("beat-1", "beat-2")
APIS = ("api-1", "api-2")


@dataclass
class Fleet:
    """Two of each process."""

    home: Path
    broker_url: str
    database_url: str
    ports: dict[str, int] = field(default_factory=lambda: {name: free_port() for name in APIS})
    processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    settings: Mapping[str, str] = field(default_factory=dict)
    died_at: dict[str, float] = field(default_factory=dict)
    restarts: int = 0

    @property
    def names(self) -> tuple[str, ...]:
        """Every process by name."""
        return (*APIS, *WORKERS, *RECONCILERS, *BEATS)

    @property
    def urls(self) -> list[str]:
        """Where the APIs answer."""
        return [f"http://127.0.0.1:{port}" for port in self.ports.values()]

    def clock(self, name: str) -> Path:
        """Return the file that holds how far a process's clock is off."""
        return self.home / f"{name}.clock"

    def command(self, name: str) -> list[str]:
        """Return how a process is started."""
        program = name.partition("-")[0]
        queue = MODEL_QUEUE if program == "model" else judge_queue(TARGET)
        quiet = ["--without-gossip", "--without-mingle", "--without-heartbeat"]
        module = {
            "api": ["warpsmith.service.server.serve"],
            "reconciler": ["warpsmith.workers.queue.reconciler"],
            "beat": ["celery", "-A", "warpsmith.workers.queue.celery_app", "beat"],
        }.get(
            program,
            ["celery", "-A", "benchmarks.chaos.worker", "worker", "-Q", queue, "-n", f"{name}@%h", "-c", "1", *quiet],
        )
        return [sys.executable, "-m", "benchmarks.chaos.jumping", str(self.clock(name)), *module]

    def environment(self, name: str) -> dict[str, str]:
        """Return the variables of a process."""
        kept = {key: value for key, value in os.environ.items() if not key.startswith(("WARPSMITH_", "OPENAI_"))}
        return {
            **kept,
            "WARPSMITH_HOME": str(self.home),
            "WARPSMITH_BROKER_URL": self.broker_url,
            "WARPSMITH_DATABASE_URL": self.database_url,
            "WARPSMITH_JUDGE_CACHE": str(self.home / "disk" / "judge"),
            "WARPSMITH_LOG_FORMAT": "json",
            "WARPSMITH_PORT": str(self.ports.get(name, 0)),
            "PYTHONUNBUFFERED": "1",
            **FAST,
            **self.settings,
        }

    def start(self, names: Sequence[str]) -> None:
        """Start processes; their logs are appended to `<home>/<name>.log`."""
        for name in names:
            if not self.clock(name).exists():
                self.clock(name).write_text("0")
            with (self.home / f"{name}.log").open("ab") as log:
                self.processes[name] = subprocess.Popen(
                    self.command(name),
                    cwd=REPOSITORY,
                    env=self.environment(name),
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                )
            self.died_at.pop(name, None)

    def supervise(self) -> None:
        """Start again what has been dead for a moment."""
        now = time.monotonic()
        for name, process in list(self.processes.items()):
            if process.poll() is None:
                continue
            if now - self.died_at.setdefault(name, now) >= REVIVE_AFTER_S:
                self.restarts += 1
                self.start([name])

    def kill(self, name: str) -> None:
        """SIGKILL a process, and not its children."""
        self.processes[name].kill()
        self.processes[name].wait()

    def members(self, name: str) -> list[psutil.Process]:
        """Return a process and everything under it."""
        return family(self.processes[name].pid)

    def children(self, name: str, word: str, luck: random.Random) -> list[psutil.Process]:
        """Return the processes under one whose command line has `word`, in random order."""
        found = []
        for process in self.members(name)[1:]:
            try:
                if word in " ".join(process.cmdline()):
                    found.append(process)
            except psutil.NoSuchProcess:
                continue
        luck.shuffle(found)
        return found

    def stop(self) -> None:
        """End everything, by force where it does not end in order."""
        everyone = [member for name in self.processes for member in self.members(name)]
        signal_all(everyone, signal.SIGCONT)
        for process in self.processes.values():
            process.terminate()
        _, left = psutil.wait_procs(everyone, timeout=STOP_S)
        signal_all(left, signal.SIGKILL)
        for process in self.processes.values():
            process.wait()
        self.processes.clear()
