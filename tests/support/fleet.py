"""Real processes for tests: a model worker, a judge worker and a reconciler, on a database and broker of their own."""

from __future__ import annotations

import os
import platform
import signal
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import psutil

from tests import REPOSITORY
from tests.services import die_with_parent
from warpsmith.workers.queue_names import MODEL_QUEUE, judge_queue

TARGET = f"cpu:{platform.machine()}"
LEASE_S = 2.0

FAST = {
    "WARPSMITH_ATTACK_S": "0",  # seconds a verification
    "WARPSMITH_JUDGE_AT_START": "false",  # most of these services judge nothing, or little
    "WARPSMITH_LEASE_S": str(LEASE_S),
    "WARPSMITH_RECONCILE_INTERVAL_S": "0.3",
    "WARPSMITH_RESEND_AFTER_S": "1.0",
}
"""Settings under which what was lost comes back within seconds."""


class Fleet:
    """The processes of one service, without API. Use as a context manager; everything that was started ends with it."""

    def __init__(self, home: Path, broker_url: str, database_url: str, **settings: str) -> None:
        self.home = home
        self.environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith(("WARPSMITH_", "OPENAI_"))},
            "WARPSMITH_HOME": str(home),
            "WARPSMITH_BROKER_URL": broker_url,
            "WARPSMITH_DATABASE_URL": database_url,
            "WARPSMITH_LOG_FORMAT": "json",
            "PYTHONUNBUFFERED": "1",
            **FAST,
            **settings,
        }
        self.processes: dict[str, subprocess.Popen[bytes]] = {}

    def __enter__(self) -> Fleet:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def command(self, name: str) -> list[str]:
        """How process `name` (model, judge or reconciler) is started."""
        if name == "reconciler":
            return [sys.executable, "-m", "warpsmith.workers.queue.reconciler"]
        queue = MODEL_QUEUE if name == "model" else judge_queue(TARGET)
        worker = [
            "celery",
            "-A",
            "warpsmith.workers.queue.celery_app",
            "worker",
            "-Q",
            queue,
            "-n",
            f"{name}@%h",
            "-c",
            "1",
        ]
        return [sys.executable, "-m", *worker, "--without-gossip", "--without-mingle", "--without-heartbeat"]

    def start(self, *names: str) -> None:
        """Start processes; their logs are appended to `<home>/<name>.log`."""
        self.home.mkdir(parents=True, exist_ok=True)
        for name in names:
            with (self.home / f"{name}.log").open("ab") as log:
                self.processes[name] = subprocess.Popen(
                    self.command(name),
                    cwd=REPOSITORY,
                    env=self.environment,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    preexec_fn=die_with_parent,  # noqa: PLW1509 - one prctl call
                )

    def revive(self) -> None:
        """Start again what has died, as a supervisor would."""
        for name, process in list(self.processes.items()):
            if process.poll() is not None:
                self.start(name)

    def kill(self, name: str) -> None:
        """SIGKILL process `name`, and not its children."""
        self.processes[name].kill()
        self.processes[name].wait()

    def descendants(self, name: str) -> list[psutil.Process]:
        """The processes under `name`, nearest first."""
        try:
            return psutil.Process(self.processes[name].pid).children(recursive=True)
        except psutil.NoSuchProcess:
            return []

    def stop(self) -> None:
        """End every process in order, then by force. Returns when they and their children are gone."""
        family = [child for name in self.processes for child in self.descendants(name)]
        for process in self.processes.values():
            process.send_signal(signal.SIGTERM)
        for process in self.processes.values():
            try:
                process.wait(timeout=5)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        _, left = psutil.wait_procs(family, timeout=5)
        for orphan in left:
            orphan.kill()
        self.processes.clear()

    def log(self, name: str) -> str:
        """What `name` has logged so far."""
        path = self.home / f"{name}.log"
        return path.read_text(errors="replace") if path.exists() else ""

    def logs(self, names: Iterable[str] = ("model", "judge", "reconciler")) -> str:
        """The ends of the logs, for the message of a failing test."""
        return "\n".join(f"--- {name}\n{self.log(name)[-3000:]}" for name in names)
