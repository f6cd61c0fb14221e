"""One judge process: jobs in, answers out to the threads that wait for them.

Standard library only.

Three threads serve it, so that no caller ever blocks on a pipe: one writes jobs, one reads answers, one its
diagnostics.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import queue
import signal
import subprocess
import tempfile
import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

TEMPORARY_FAILURE = 75
"""Exit status of a judge whose unanswered jobs should go to a fresh judge.

It is EX_TEMPFAIL of sysexits.h.
"""

_log = logging.getLogger(__name__)

_LONGEST_LINE = 64 << 20
_KEPT_LINES = 40
_END_S = 5.0


@dataclass(frozen=True)
class End:
    """The end of a judge.

    `ordered`: it was killed by its client; `text` holds the end of its diagnostics.
    """

    status: int | None
    ordered: bool
    text: str

    @property
    def send_again(self) -> bool:
        """What was not answered was not at fault, and may go to another judge."""
        return self.ordered or self.status == TEMPORARY_FAILURE


class Waiting:
    """One job on its way.

    `done` is set when `document` (the answer) or `end` is there; for a job that was taken back, when the judge has said
    whether it works on it (`judging`).
    """

    def __init__(self, ticket: str) -> None:
        self.ticket = ticket
        self.done = threading.Event()
        self.document: dict[str, Any] | None = None
        self.end: End | None = None
        self.judging = False


class Connection:
    """A judge process from its start to its end. Thread-safe.

    It dies with the thread that makes this object (PR_SET_PDEATHSIG, see prctl(2)).
    """

    def __init__(
        self,
        command: Sequence[str],
        environment: Callable[[Path], dict[str, str]],
        log: Callable[[str], None] | None,
        on_progress: Callable[[str, Any], None] | None = None,
    ) -> None:
        """Start `command`; `environment` is asked with the empty directory that is its home.

        `on_progress` gets the id of a job that was asked and where it is, from the thread that reads answers. Where it
        raises, that is logged and it is called no more.
        """
        self._log = log
        self._on_progress = on_progress
        self._home = tempfile.TemporaryDirectory(prefix="warpsmith-judge-home-")
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environment(Path(self._home.name)),
            cwd=self._home.name,
            start_new_session=True,
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        assert self._process.stderr is not None
        self._lock = threading.Lock()
        self._waiting: dict[str, Waiting] = {}
        self._left: dict[str, Waiting] = {}  # taken back, and perhaps answered all the same
        self._ordered = False
        self._end: End | None = None
        self._tail: deque[str] = deque(maxlen=_KEPT_LINES)
        self._lines: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._writer = self._thread(self._write, self._process.stdin)
        self._pump = self._thread(self._read_diagnostics, self._process.stderr)
        self._reader = self._thread(self._read, self._process.stdout)

    @property
    def pid(self) -> int:
        """The process, which leads a session of its own."""
        return self._process.pid

    @property
    def running(self) -> bool:
        """Whether it can be asked."""
        return self._end is None and self._process.poll() is None

    def ask(self, job: dict[str, Any]) -> Waiting:
        """Send a job whose id was never used here before."""
        waiting = Waiting(job["id"])
        with self._lock:
            if self._end is not None:
                waiting.end = self._end
                waiting.done.set()
                return waiting
            self._waiting[waiting.ticket] = waiting
        self._lines.put(json.dumps(job).encode() + b"\n")
        return waiting

    def take_back(self, waiting: Waiting, patience_s: float) -> bool:
        """Drop a job whose verdict is not needed any more.

        Returns False where the judge works on it, or does not say within `patience_s`.
        """
        with self._lock:
            if self._end is not None or self._waiting.pop(waiting.ticket, None) is None:
                return True
            self._left[waiting.ticket] = waiting
        self._lines.put(json.dumps({"cancel": waiting.ticket}).encode() + b"\n")
        waiting.done.wait(patience_s)
        return waiting.done.is_set() and not waiting.judging

    def kill(self) -> None:
        """End the process and everything under it at once.

        The fork server notices the referee's end and kills the runners.
        """
        self._ordered = True
        self._kill()
        self._reader.join(timeout=3 * _END_S)

    def finish(self, patience_s: float) -> None:
        """End it by end of input, which lets it answer what it was asked.

        It ends by force where it does not end in time.
        """
        self._lines.put(None)
        self._reader.join(timeout=patience_s)
        if self._reader.is_alive():
            self.kill()

    def _kill(self) -> None:
        if self._process.poll() is None:
            with contextlib.suppress(ProcessLookupError):  # it ended just now
                os.killpg(self._process.pid, signal.SIGKILL)

    def _thread(self, target: Callable[[Any], None], stream: IO[bytes]) -> threading.Thread:
        thread = threading.Thread(
            target=target, args=(stream,), name=f"judge-{target.__name__.strip('_')}", daemon=True
        )
        thread.start()
        return thread

    def _write(self, stream: IO[bytes]) -> None:
        with contextlib.suppress(OSError):  # it died; the reader tells the threads that wait
            while (line := self._lines.get()) is not None:
                stream.write(line)
                stream.flush()
        with contextlib.suppress(OSError):  # unsent input of a dead process
            stream.close()

    def _read_diagnostics(self, stream: IO[bytes]) -> None:
        for raw in stream:
            line = raw.decode(errors="replace").rstrip()
            self._tail.append(line)
            if self._log is not None:
                self._log(line)

    def _read(self, stream: IO[bytes]) -> None:
        pending = b""
        fault = None
        while fault is None and (block := os.read(stream.fileno(), 1 << 20)):
            *lines, pending = (pending + block).split(b"\n")
            if len(pending) > _LONGEST_LINE:
                fault = f"the judge wrote a line of more than {_LONGEST_LINE} bytes"
            for line in lines:
                fault = fault or self._hand_over(line)
        self._kill()  # without its output it is of no use, even where it lives
        self._ended(fault)

    def _hand_over(self, line: bytes) -> str | None:
        """Give an answer to the thread that waits for it; returns what is wrong with it."""
        try:
            document = json.loads(line)
        except ValueError:
            return f"the judge wrote a line that is not JSON: {line[:200]!r}"
        ticket = document.get("id") if isinstance(document, dict) else None
        if not isinstance(ticket, str):
            return f"the judge wrote a line that answers no job: {line[:200]!r}"
        if "progress" in document:
            self._tell_progress(ticket, document["progress"])
            return None
        with self._lock:
            if "cancel" in document:
                self._taken_back(ticket, str(document["cancel"]))
                return None
            if (waiting := self._waiting.pop(ticket, None)) is not None:
                waiting.document = document
            elif (waiting := self._left.pop(ticket, None)) is None:
                return f"the judge answered job {ticket!r}, which nobody sent"
            waiting.done.set()
        return None

    def _tell_progress(self, ticket: str, where: Any) -> None:
        """Call the caller's function, and drop it where it raises: the answers of all threads come after it."""
        if self._on_progress is None:
            return
        try:
            self._on_progress(ticket, where)
        except Exception:  # noqa: BLE001 - whatever the caller's code raises
            self._on_progress = None
            _log.exception("the function that is told a judge's progress raised: it is told no more")

    def _taken_back(self, ticket: str, word: str) -> None:
        """Note what the judge says of a job that was taken back.

        The word is dropped, judging, or unknown, since the job is answered.
        """
        if (waiting := self._left.get(ticket)) is not None:
            waiting.judging = word == "judging"
            waiting.done.set()
            if not waiting.judging:
                del self._left[ticket]

    def _ended(self, fault: str | None) -> None:
        try:
            status: int | None = self._process.wait(timeout=_END_S)
        except subprocess.TimeoutExpired:  # it says nothing more, and goes on
            status = None
            self._kill()
            self._process.wait()
        self._pump.join(timeout=_END_S)
        head = fault or f"the judge ended with status {'unknown' if status is None else status}"
        with self._lock:
            self._end = End(status, self._ordered, "\n".join([head, *self._tail]))
            waiting = [*self._waiting.values(), *self._left.values()]
            self._waiting.clear()
            self._left.clear()
        for one in waiting:
            one.end = self._end
            one.judging = False
            one.done.set()
        self._lines.put(None)  # ends the writer, which closes its pipe
        self._writer.join(timeout=_END_S)
        for stream in (self._process.stdout, self._process.stderr):
            assert stream is not None
            stream.close()
        self._home.cleanup()
