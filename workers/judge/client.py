"""A judge process of one's own, for Celery workers and the command line. Standard library only.

    with JudgeClient(cache=Path(...), log=logger.info) as judge:
        verdict = judge.judge(job, timeout_s=600)

The process gets a clean environment, so no key or password of the caller reaches it, and a session of its own. It dies
with the *thread* that started it (that is what Linux offers): call `judge` from a thread that lives as long as the
client. A client is used by one thread at a time.
"""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import IO, Any, cast

import workers
from kernels_db.job import Job, Verdict

_WAIT_S = 1.0
_CLOSE_S = 15.0
_LONGEST_LINE = 64 << 20
_KEPT_LINES = 40
_PASSED_ON = ("PATH", "LANG", "CXX", "OMP_NUM_THREADS", "TMPDIR")


class JudgeError(Exception):
    """Base of what a client raises."""


class JudgeDied(JudgeError):  # noqa: N818 - the contract's name
    """The judge ended without answering; the message carries the end of its diagnostics. The next job starts a new
    one.
    """


class JudgeTimeout(JudgeError):  # noqa: N818 - the contract's name
    """No verdict in time. The judge was killed."""


class JobRefused(JudgeError):  # noqa: N818 - the contract's name
    """The judge could not read the job."""

    def __init__(self, field: str, found: object, expected: str) -> None:
        super().__init__(f"{field}: found {found!r}, expected {expected}")
        self.field, self.found, self.expected = field, found, expected


def judge_environment(cache: Path, home: Path) -> dict[str, str]:
    """The whole environment of a judge process."""
    passed = {name: os.environ[name] for name in _PASSED_ON if name in os.environ}
    return {
        "PATH": os.defpath,
        "LANG": "C.UTF-8",
        **passed,
        "HOME": str(home),
        "PYTHONPATH": str(Path(workers.__file__).resolve().parents[1]),
        "PYTHONDONTWRITEBYTECODE": "1",
        "WARPSMITH_JUDGE_CACHE": str(cache),
        "WARPSMITH_KERNEL_CACHE": str(cache / "kernels"),
    }


class JudgeClient:
    """Keeps one judge process; it starts with the first job and again after its death."""

    def __init__(self, *, cache: Path, log: Callable[[str], None] | None = None) -> None:
        """`cache` holds binaries and device peaks; `log` gets the judge's diagnostics, line by line, from a thread."""
        self._cache = cache
        self._log = log
        self._process: subprocess.Popen[bytes] | None = None
        self._home: tempfile.TemporaryDirectory[str] | None = None
        self._pump: threading.Thread | None = None
        self._tail: deque[str] = deque(maxlen=_KEPT_LINES)
        self._pending = b""

    @property
    def pid(self) -> int | None:
        """Process id of the judge while it runs; also its session."""
        return self._process.pid if self._process else None

    def start(self) -> None:
        """Start the process unless it runs, without waiting for it: its start takes seconds and can overlap with other
        work.
        """
        if self._process is not None and self._process.poll() is None:
            return
        self._stop()
        self._home = tempfile.TemporaryDirectory(prefix="warpsmith-judge-home-")
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "workers.judge", "--die-with-parent", str(os.getpid())],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=judge_environment(self._cache, Path(self._home.name)),
            cwd=self._home.name,
            start_new_session=True,
        )
        self._pending = b""
        self._tail.clear()
        self._pump = threading.Thread(target=self._read_diagnostics, args=(self._process.stderr,), daemon=True)
        self._pump.start()

    def judge(self, job: Job, timeout_s: float, on_wait: Callable[[], None] | None = None) -> Verdict:
        """The verdict on one job.

        Args:
            job: a resolved job (`kernels_db.resolve.build_job`).
            timeout_s: seconds for the whole job; past it the judge and everything under it is killed.
            on_wait: called about once a second while waiting; what it raises ends the job (the judge is killed) and is
            raised on.

        Raises:
            JudgeDied: the process ended; JudgeTimeout: no answer in time; JobRefused: the job is not one.
        """
        deadline = time.monotonic() + timeout_s
        self.start()
        try:
            self._send(json.dumps(job).encode() + b"\n", deadline, on_wait)
            document = self._receive(deadline, on_wait)
        except BaseException:
            self._stop()  # a late verdict must not answer the next job
            raise
        if "error" in document:
            error = cast("dict[str, Any]", document["error"])
            raise JobRefused(str(error["field"]), error["found"], str(error["expected"]))
        if document.get("id") != job["id"]:
            self._stop()
            raise JudgeDied(f"answered job {document.get('id')!r} instead of {job['id']!r}")
        return cast("Verdict", document)

    def close(self) -> None:
        """End the judge: by end of input, or by force where it does not end in time."""
        process = self._process
        if process is not None and process.poll() is None:
            assert process.stdin is not None
            try:
                process.stdin.close()
                process.wait(timeout=_CLOSE_S)
            except (OSError, subprocess.TimeoutExpired):
                pass  # killed below
        self._stop()

    def __enter__(self) -> JudgeClient:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _send(self, raw: bytes, deadline: float, on_wait: Callable[[], None] | None) -> None:
        process = self._process
        assert process is not None
        assert process.stdin is not None
        fd = process.stdin.fileno()
        os.set_blocking(fd, False)
        with selectors.DefaultSelector() as selector:
            selector.register(fd, selectors.EVENT_WRITE)
            while raw:
                if not selector.select(self._patience(deadline)):
                    self._waited(deadline, on_wait)
                    continue
                try:
                    raw = raw[os.write(fd, raw) :]
                except BlockingIOError:
                    continue
                except BrokenPipeError:
                    self._died()

    def _receive(self, deadline: float, on_wait: Callable[[], None] | None) -> dict[str, Any]:
        process = self._process
        assert process is not None
        assert process.stdout is not None
        fd = process.stdout.fileno()
        with selectors.DefaultSelector() as selector:
            selector.register(fd, selectors.EVENT_READ)
            while b"\n" not in self._pending:
                if not selector.select(self._patience(deadline)):
                    self._waited(deadline, on_wait)
                    continue
                block = os.read(fd, 1 << 20)
                if not block or len(self._pending) > _LONGEST_LINE:
                    self._died()
                self._pending += block
        line, self._pending = self._pending.split(b"\n", 1)
        try:
            document = json.loads(line)
        except ValueError as error:
            raise JudgeDied(f"wrote a line that is not JSON: {line[:200]!r}") from error
        if not isinstance(document, dict):
            raise JudgeDied(f"wrote a line that is no document: {line[:200]!r}")
        return document

    @staticmethod
    def _patience(deadline: float) -> float:
        return max(0.0, min(_WAIT_S, deadline - time.monotonic()))

    @staticmethod
    def _waited(deadline: float, on_wait: Callable[[], None] | None) -> None:
        if time.monotonic() >= deadline:
            raise JudgeTimeout("no verdict in time; the judge was killed")
        if on_wait is not None:
            on_wait()

    def _died(self) -> None:
        assert self._process is not None
        try:
            status: object = self._process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            status = "unknown"
        if self._pump is not None:
            self._pump.join(timeout=5)
        raise JudgeDied("\n".join([f"the judge ended with status {status}", *self._tail]))

    def _stop(self) -> None:
        """Kill what runs. The fork server notices the referee's end and kills the runners."""
        process, self._process = self._process, None
        if process is not None:
            if process.poll() is None:
                if _leads_session(process.pid):
                    os.killpg(process.pid, signal.SIGKILL)  # with its compilers
                else:
                    process.kill()
            process.wait()
            if self._pump is not None:
                self._pump.join(timeout=_CLOSE_S)
            for stream in (process.stdin, process.stdout, process.stderr):
                assert stream is not None
                with contextlib.suppress(OSError):  # unsent input of a dead process
                    stream.close()
        if self._home is not None:
            self._home.cleanup()
            self._home = None

    def _read_diagnostics(self, stream: IO[bytes]) -> None:
        for raw in stream:
            line = raw.decode(errors="replace").rstrip()
            self._tail.append(line)
            if self._log is not None:
                self._log(line)


def _leads_session(pid: int) -> bool:
    """False between fork and setsid, when the process would still be in the caller's own group."""
    try:
        return os.getsid(pid) == pid
    except ProcessLookupError:
        return False
