"""The home directory of a local service: its launcher's lock, and its URL."""

from __future__ import annotations

import fcntl
import json
import os
import time
from pathlib import Path
from typing import TextIO, TypedDict

# `find_running_service` holds the lock for an instant; a launcher that starts in that instant tries again.
ACQUIRE_RETRIES_S = (0.05, 0.1, 0.2)


class RunningService(TypedDict):
    """Content of a launcher's lock file."""

    pid: int
    url: str


class HomeInUseError(RuntimeError):
    """Another launcher serves this home."""

    def __init__(self, home: Path, running: RunningService | None) -> None:
        where = (
            f"process {running['pid']} at {running['url']}" if running else "another process, which is just starting"
        )
        super().__init__(
            f"home: found {home} in use by {where}, expected a home that no other `warpsmith up` serves; "
            "use that one, stop it, or set WARPSMITH_HOME to another directory"
        )
        self.running = running


class HomeLock:
    """An exclusive lock on a home; the kernel releases it when the process ends in any way."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self._file: TextIO | None = None

    def acquire(self) -> None:
        """Take the lock, or raise `HomeInUseError`."""
        self.home.mkdir(parents=True, exist_ok=True, mode=0o700)
        descriptor = os.open(_lock_path(self.home), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        file = os.fdopen(descriptor, "r+", encoding="utf-8")
        for patience_s in (*ACQUIRE_RETRIES_S, None):
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if patience_s is None:
                    file.close()
                    raise HomeInUseError(self.home, find_running_service(self.home)) from None
                time.sleep(patience_s)
        file.truncate(0)
        self._file = file

    def announce(self, url: str) -> None:
        """Write the URL for other commands on this home."""
        assert self._file is not None
        document: RunningService = {"pid": os.getpid(), "url": url}
        self._file.seek(0)
        self._file.truncate(0)
        self._file.write(json.dumps(document))
        self._file.flush()

    def release(self) -> None:
        """Give the lock back."""
        if self._file is not None:
            self._file.truncate(0)
            self._file.close()
            self._file = None


def find_running_service(home: Path) -> RunningService | None:
    """Find the service that a live launcher announced on `home`; None where there is none."""
    try:
        file = _lock_path(home).open(encoding="utf-8")
    except FileNotFoundError:
        return None
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            text = file.read()
        else:
            return None  # no launcher holds it: its content is old
    if not text:
        return None
    document = json.loads(text)
    return {"pid": int(document["pid"]), "url": str(document["url"])}


def _lock_path(home: Path) -> Path:
    return home / "launcher.lock"
