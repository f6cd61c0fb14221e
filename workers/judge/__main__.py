"""`python -m warpsmith.workers.judge`: one job a line in, one verdict a line out.

Each has its job's id, in the order in which they are ready; diagnostics go to standard error. Ends at end of input,
when every job is answered; with status 75 where the jobs that were not answered should be sent to a fresh judge.

`--die-with-parent PID`: be killed when the thread of process PID that started this one ends. `--compilers`: start what
compiles for GPUs at once, beside everything else that starts, because the first job needs it. `--progress`: say where
each job is, in lines {"id", "progress": {"gate", "workload", "number", "total"}} before its verdict.
WARPSMITH_JUDGE_CACHE names the cache directory (default: the user's cache, warpsmith/judge). A broken line gets an
error line back: {"id", "error": {"field", "found", "expected"}}; a job that a fault of the judge's own ended gets
{"id", "fault": traceback}, and one that this host cannot judge now {"id", "unfit": {"part": "disk" | "device",
"reason"}}, as every job is while the cache directory cannot be made. {"cancel": id} takes a job back that is not being
judged yet.

`python -m warpsmith.workers.judge DIR...` judges bundles instead (`directory`; `--job-timeout S` seconds for a job):
0 when every job has its verdict, 1 when some could not be judged, 2 for a bad directory or the wrong host, 130 and
143 when it was interrupted. What it has judged by then stays.
"""

from __future__ import annotations

import argparse
import errno
import json
import os
import signal
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from warpsmith.workers.judge.machine import process_control
from warpsmith.workers.judge.machine.garbage import imports_kept

if TYPE_CHECKING:
    from warpsmith.workers.judge.runner.fork_server_client import ForkServer

_LEAST_AT_ONCE, _MOST_AT_ONCE = 2, 8
"""Limits of how many candidates are prepared at once.

Between them the number is half of the cores', so that the referee and the timed contender have theirs.
"""

_ROOM = 64
"""Jobs that are read and not answered; more wait in the pipe."""


CACHE_VARIABLE = "WARPSMITH_JUDGE_CACHE"


def cache_directory() -> Path:
    """Return the cache directory of the judge."""
    named = os.environ.get(CACHE_VARIABLE)
    if named:
        return Path(named)
    base = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return Path(base) / "warpsmith" / "judge"


def make_cache(cache: Path) -> str | None:
    """Make the cache directory; returns why it cannot be made, None where it is there."""
    try:
        cache.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        # "File exists" would be no reason: it may, where it is a directory.
        words = os.strerror(errno.ENOTDIR) if isinstance(error, FileExistsError) else error.strerror
        field = f"{CACHE_VARIABLE}: " if os.environ.get(CACHE_VARIABLE) else ""
        return f"{field}cannot make the directory {cache}: {words}"
    return None


def _terminate(number: int, frame: object) -> NoReturn:
    raise SystemExit(128 + number)


def _lines(fd: int) -> Iterator[str]:
    """Yield lines from a descriptor as they come."""
    pending = b""
    while block := os.read(fd, 1 << 20):
        *lines, pending = (pending + block).split(b"\n")
        for line in lines:
            if line.strip():
                yield line.decode(errors="replace")
    if pending.strip():
        yield pending.decode(errors="replace")


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < 86_400:
        raise argparse.ArgumentTypeError(f"found {text}, expected seconds, more than 0 and less than a day")
    return seconds


def _judge_bundles(directories: list[Path], timeout_s: float | None) -> int:
    from warpsmith.workers.judge.protocol.directory import JOB_TIMEOUT_S, judge_directories  # noqa: PLC0415 - the door needs none of it

    signal.signal(signal.SIGTERM, _terminate)
    try:
        return judge_directories(directories, cache_directory(), timeout_s or JOB_TIMEOUT_S)
    except KeyboardInterrupt:
        sys.stderr.write("interrupted: the verdicts so far stay; the same command goes on from here\n")
        return 130


def main() -> int:
    """Serve until the end of input, or judge a bundle; returns the exit status."""
    arguments = argparse.ArgumentParser(
        prog="python -m warpsmith.workers.judge", description="Judge jobs from standard input, or those of bundles."
    )
    arguments.add_argument("directories", nargs="*", type=Path, metavar="DIR", help="bundles by `warpsmith bundle`")
    arguments.add_argument("--job-timeout", type=_seconds, metavar="S", help="seconds for a job of a bundle (600)")
    arguments.add_argument("--die-with-parent", type=int, metavar="PID")
    arguments.add_argument("--compilers", action="store_true")
    arguments.add_argument("--progress", action="store_true")
    given = arguments.parse_args()
    if given.directories:
        return _judge_bundles(given.directories, given.job_timeout)
    if given.job_timeout is not None:
        arguments.error("--job-timeout is for a bundle: name its directory")
    if given.die_with_parent is not None:
        process_control.die_with_parent(given.die_with_parent)
    process_control.hide_memory()
    process_control.adopt_orphans()
    signal.signal(signal.SIGTERM, _terminate)
    # The referee's own threads must sleep at once: one that spins after a copy takes a core from the contender that is
    # timed.
    os.environ["GOMP_SPINCOUNT"] = "0"
    door = os.dup(1)
    os.dup2(2, 1)  # whatever prints, the door carries verdicts alone
    with tempfile.TemporaryDirectory(prefix="warpsmith-judge-") as scratch:
        return _serve(door, Path(scratch), compilers=given.compilers, progress=given.progress)


def share_clock(cache: Path) -> ExitStack:
    """Keep other judges from timing the processor until the result is closed: a start's imports take its cores."""
    from warpsmith.workers.judge.machine.clock_lease import PROCESSOR, ClockLease  # noqa: PLC0415 - as in `_serve`

    held = ExitStack()
    with suppress(OSError):  # a cache that takes no writes: jobs are told
        held.enter_context(ClockLease(cache, PROCESSOR).beside())
    return held


def _serve(door: int, scratch: Path, *, compilers: bool, progress: bool) -> int:
    # Imported late: what `main` has done must come before anything slow. The fork server imports torch while this
    # process does, and so does the compile server.
    from warpsmith.workers.judge.languages import compile_service  # noqa: PLC0415
    from warpsmith.workers.judge.machine.host import cores_available  # noqa: PLC0415
    from warpsmith.workers.judge.runner.fork_server_client import ForkServer  # noqa: PLC0415

    cores = cores_available()
    cache = cache_directory()
    if make_cache(cache) is not None:
        return _refuse_jobs(door, cache, progress=progress)
    server = ForkServer(cores, scratch)
    try:
        starting = share_clock(cache)  # the system takes the share back where this process dies with it
        server.start()
        if compilers:
            compile_service.start()
        return _judge_jobs(door, cache, scratch, cores, server, starting, progress=progress)
    except KeyboardInterrupt:
        return 130
    finally:
        server.close()


def _answer(door: int, document: Any) -> None:
    raw = json.dumps(document, allow_nan=False).encode() + b"\n"
    while raw:
        raw = raw[os.write(door, raw) :]


def _refuse_jobs(door: int, cache: Path, *, progress: bool) -> int:
    """Answer until the end of input that this host cannot judge, or until the cache directory can be made."""
    with imports_kept():
        from warpsmith.workers.judge.machine.timing_guard import QUIET  # noqa: PLC0415 - as in `_serve`
        from warpsmith.workers.judge.protocol.pipeline import Pipeline  # noqa: PLC0415
        from warpsmith.workers.judge.protocol.refusal import Refusal  # noqa: PLC0415

    refusal, answer = Refusal(partial(make_cache, cache)), partial(_answer, door)
    try:
        return Pipeline(refusal, answer, quiet=QUIET, width=1, room=_ROOM, progress=progress).run(_lines(0))
    except KeyboardInterrupt:
        return 130


def _judge_jobs(
    door: int, cache: Path, scratch: Path, cores: int, server: ForkServer, starting: ExitStack, *, progress: bool
) -> int:
    """Judge until the end of input; `starting` is closed once everything has started."""
    with imports_kept():
        from warpsmith.workers.judge.gates.referee import Referee  # noqa: PLC0415
        from warpsmith.workers.judge.languages import compile_service  # noqa: PLC0415
        from warpsmith.workers.judge.machine.timing_guard import QUIET  # noqa: PLC0415
        from warpsmith.workers.judge.preloaded import programs  # noqa: PLC0415
        from warpsmith.workers.judge.protocol.pipeline import Pipeline  # noqa: PLC0415

    def end_start() -> None:
        with starting:
            server.settle()
            compile_service.settle()

    referee = Referee(cache, scratch, cores, server)
    threading.Thread(target=end_start, name="start", daemon=True).start()
    width = max(_LEAST_AT_ONCE, min(_MOST_AT_ONCE, cores // 2))
    try:
        answer = partial(_answer, door)
        pipeline = Pipeline(referee, answer, quiet=QUIET, width=width, room=_ROOM, progress=progress)
        return pipeline.run(_lines(0))
    finally:
        referee.close()
        compile_service.close()
        programs.close()


if __name__ == "__main__":
    status = main()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)  # everything is closed, and to take torch's modules apart one by one takes a third of a second
