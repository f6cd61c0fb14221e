"""A judge for programs: `from warpsmith import Judge`.

    with Judge() as judge:
        verdict = judge("softmax.yaml", source, language="triton", timeout=120)
        if verdict.accepted:
            print(verdict.speedup)

docs/judge-api.md has whole examples. What reads ops and candidates is imported with the first judge: this module, which
`import warpsmith` names, loads in a tenth of a second.
"""

from __future__ import annotations

import itertools
import math
import os
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeAlias, TypedDict, Unpack

from warpsmith.kernels_db.job.documents import Job, Progress, SandboxLevel
from warpsmith.workers.judge.protocol.client import JobRefused, JudgeClient, JudgeDied, JudgeTimeout
from warpsmith.workers.judging.judgement import Judgement, judgement, no_verdict
from warpsmith.workers.judging.turns import Line

if TYPE_CHECKING:
    from warpsmith.kernels_db.spec.op import Op
    from warpsmith.workers.judging.targets import Place

AT_ONCE = 8
"""Candidates on their way to a judge at once: as many as it prepares beside each other at most."""

MOST_SENDS = 64
"""Times that a job is sent while others than itself cut it off."""

_CLOSE_S = 10.0

OpLike: TypeAlias = "Op | Mapping[str, Any] | str | os.PathLike[str]"
"""An op, its document, its YAML or JSON text, or the path of its spec."""

Source: TypeAlias = "str | os.PathLike[str]"
"""The text of a candidate, or a Path of it."""


class Options(TypedDict, total=False):
    """How candidates are judged: the keywords of `Judge.__call__`, which says what they mean."""

    language: str | None
    level: str
    workloads: Sequence[str] | None
    target: str | None
    timeout: float | None


class JudgeClosed(RuntimeError):  # noqa: N818 - named for what is so
    """The judge was closed before or while it was asked."""


class Judge:
    """A judge on this machine: compiles, checks against PyTorch and times candidates, each confined. Thread-safe.

    A process of its own does it, which starts with the first candidate and again after its death. A candidate that is
    timed has the device alone, so one judge for each GPU is enough. Close it, use it as a context manager, or let it
    go: the process ends with the object and with the program.
    """

    def __init__(
        self,
        *,
        target: str | None = None,
        sandbox: SandboxLevel | None = None,
        limits: Mapping[str, float | None] | None = None,
        cache: str | os.PathLike[str] | None = None,
        log: Callable[[str], None] | None = None,
        progress: Callable[[Progress], None] | None = None,
    ) -> None:
        """Set up a judge; its process starts with the first candidate.

        Args:
            target: "cpu", "cuda:sm_90" ...; by default the CPU for C++ and free Python, else the first GPU.
            sandbox: the least confinement of what runs; on a machine that reaches less the verdict is `ambiguous`.
            limits: of one job, in place of the defaults: `compile_s`, `call_s` and `time_s` (seconds for one compiler
                run, one call, the timing of one workload), `attack_s` (seconds a workload of a verification's search
                for a counterexample; 0: none) and `memory_bytes`.
            cache: directory for binaries, baselines and device peaks.
            log: gets the judge's diagnostics, line by line, from another thread.
            progress: gets where a job is (gate, workload, number, total), from another thread, as it gets further.

        Where they are not given, WARPSMITH_SANDBOX_MINIMUM, WARPSMITH_ATTACK_S and WARPSMITH_JUDGE_CACHE (by default
        ~/.warpsmith/judge) hold, as for the command line. Raises SpecError for a bad limit, pydantic's ValidationError
        for a bad setting.
        """
        from warpsmith.workers.judging.submission import limits_from  # noqa: PLC0415 - with the first judge
        from warpsmith.workers.settings import Settings  # noqa: PLC0415

        settings = Settings()
        self._target = target
        self._limits = limits_from(limits or {}, sandbox or settings.sandbox_minimum, settings.attack_s)
        self._timeout_s = settings.judge_job_timeout_s
        directory = settings.judge_cache_dir if cache is None else Path(cache)
        tell = None if progress is None else lambda _, where: progress(where)
        self._client = JudgeClient(cache=directory.expanduser().resolve(), log=log, ncu=settings.ncu, progress=tell)
        self._line = Line()
        self._closing = threading.Event()
        self._lock = threading.Lock()
        self._places: dict[tuple[str | None, str], Place] = {}
        self._pool: ThreadPoolExecutor | None = None
        self._owner = os.getpid()
        self._finalizer = weakref.finalize(self, _close_client, self._client, self._owner)

    def __call__(
        self,
        op: OpLike,
        source: Source,
        *,
        language: str | None = None,
        level: str = "verify",
        workloads: Sequence[str] | None = None,
        target: str | None = None,
        timeout: float | None = None,
    ) -> Judgement:
        """Judge one candidate; returns when there is a verdict, or none in time.

        Args:
            op: an Op, the path of its spec, the spec's YAML or JSON text, or its document.
            source: the candidate's text, or a Path of it.
            language: "cpp", "triton", "cuda" or "python"; read from the imports where None. Name it where a model wrote
                the source: a file that cannot be read is then rejected, and no error here.
            level: "screen" (bench workloads, a short timing), "verify" (everything, for a kernel that is kept) or
                "profile" (a table of where the time goes; checks nothing) or "compile" (the gate and the compilers).
            workloads: ids of the workloads to judge on; by default those that the level takes.
            target: in place of the judge's.
            timeout: seconds from when the judge turns to this candidate, to about a second. Its own start (seconds) and
                the baselines of an op that it has not seen (up to minutes) count. Where they pass, the judge is ended,
                and started again for the next. By default WARPSMITH_JUDGE_JOB_TIMEOUT_S, 600.

        Raises:
            SpecError: a bad argument or source; `field`, `found` and `expected` say which.
            SpecErrors: every bad field of the op.
            CannotJudge: this machine lacks torch, a compiler ...; the message has the remedy.
            JudgeClosed: the judge was closed.
            OSError: a file cannot be read.
        """
        return self._judge(
            op,
            source,
            self._closing,
            language=language,
            level=level,
            workloads=workloads,
            target=target,
            timeout=timeout,
        )

    async def ajudge(self, op: OpLike, source: Source, **options: Unpack[Options]) -> Judgement:
        """Judge one candidate, awaited. Options and errors are the call's.

        At most AT_ONCE are on their way; others wait here. A cancelled task takes its candidate back.
        """
        import asyncio  # noqa: PLC0415 - who awaits has it

        with self._lock:
            self._check_open()
            if self._pool is None:
                self._pool = ThreadPoolExecutor(AT_ONCE, thread_name_prefix="judge-await")
            ending = threading.Event()
            future = self._pool.submit(self._judge, op, source, ending, **options)
        try:
            return await asyncio.wrap_future(future)
        finally:
            ending.set()

    def map(
        self, op: OpLike, sources: Iterable[Source], *, at_once: int = AT_ONCE, **options: Unpack[Options]
    ) -> Iterator[Judgement]:
        """Judge several candidates for one op; yields their judgements in order.

        Options, each candidate's `timeout` among them, and errors are the call's. `at_once`: candidates on their way to
        the judge, which prepares them beside each other (for a GPU) and times one after another. Closing the iterator
        takes the others back.
        """
        return _in_order(self.as_completed(op, sources, at_once=at_once, **options))

    def as_completed(
        self, op: OpLike, sources: Iterable[Source], *, at_once: int = AT_ONCE, **options: Unpack[Options]
    ) -> Iterator[tuple[int, Judgement]]:
        """Judge several candidates for one op; yields (position in `sources`, judgement) as each is ready.

        Otherwise as `map`.
        """
        from warpsmith.kernels_db.spec.errors import SpecError  # noqa: PLC0415 - as below
        from warpsmith.workers.judging.submission import read_op  # noqa: PLC0415 - with the first op

        self._check_open()
        if isinstance(at_once, bool) or not isinstance(at_once, int) or at_once < 1:
            raise SpecError("at_once", at_once, "a whole number above zero")
        return self._completed(read_op(op), sources, at_once, options)

    def check(self, op: OpLike, *, target: str | None = None, timeout: float | None = None) -> Judgement:
        """Examine an op by itself: its reference must run, and deliberately wrong answers must be found out.

        `admitted` of the judgement says whether it is so. Do it before candidates are rewarded: an op that zeros would
        pass is won by zeros. It measures the baselines too, so the first candidate need not wait for them. `target` is
        by default the judge's, else the CPU. Raises as the call does.
        """
        from warpsmith.workers.judging import machine  # noqa: PLC0415 - with the first op
        from warpsmith.workers.judging.submission import op_job, read_op  # noqa: PLC0415

        machine.require_judge()
        self._check_open()
        job = op_job(read_op(op), target or self._target or "cpu", self._limits)
        return self.submit(job, timeout=timeout)

    def submit(self, job: Job, *, timeout: float | None = None, notes: tuple[str, ...] = ()) -> Judgement:
        """Judge a job that is built already (`submission`); `notes` go into the judgement. Raises as the call does."""
        return self._send(job, self._seconds(timeout), notes, self._closing)

    def close(self) -> None:
        """End the judge; candidates on their way are taken back, and their callers get JudgeClosed."""
        with self._lock:
            self._closing.set()
            pool, self._pool = self._pool, None
        if self._owner == os.getpid():
            self._line.wait_until_empty(_CLOSE_S)  # a job that is on its way would start another judge
        if pool is not None:
            pool.shutdown(cancel_futures=True)
        self._finalizer()

    def __enter__(self) -> Judge:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _completed(
        self, op: Op, sources: Iterable[Source], at_once: int, options: Options
    ) -> Iterator[tuple[int, Judgement]]:
        numbered = enumerate(sources)
        ending = threading.Event()

        def judge(number: int, source: Source) -> tuple[int, Judgement]:
            return number, self._judge(op, source, ending, **options)

        with ThreadPoolExecutor(at_once, thread_name_prefix="judge-map") as pool:
            running: set[Future[tuple[int, Judgement]]] = set()
            try:
                while True:
                    for item in itertools.islice(numbered, at_once - len(running)):
                        running.add(pool.submit(judge, *item))
                    if not running:
                        return
                    done, running = wait(running, return_when=FIRST_COMPLETED)
                    yield from (future.result() for future in done)
            finally:
                ending.set()

    def _judge(
        self,
        op: OpLike,
        source: Source,
        ending: threading.Event,
        *,
        language: str | None = None,
        level: str = "verify",
        workloads: Sequence[str] | None = None,
        target: str | None = None,
        timeout: float | None = None,
    ) -> Judgement:
        """Judge a candidate; JudgeClosed once `ending` is set."""
        from warpsmith.workers.judging.candidates import read_candidate_file  # noqa: PLC0415 - with the first one
        from warpsmith.workers.judging.submission import candidate_job, read_op  # noqa: PLC0415

        self._check_open()
        seconds = self._seconds(timeout)
        known = read_op(op)
        candidate = read_candidate_file(known, source, language)
        place = self._place(target or self._target, candidate.language)
        job = candidate_job(known, candidate, place, level=level, workloads=workloads, limits=self._limits)
        notes = candidate.notes + (() if place.shortfall is None else (place.shortfall,))
        return self._send(job, seconds, notes, ending)

    def _place(self, target: str | None, language: str) -> Place:
        """Return where candidates are judged; the machine is asked once."""
        from warpsmith.workers.judging.targets import choose_place  # noqa: PLC0415 - as above

        if (target, language) not in self._places:
            self._places[target, language] = choose_place(target, language)
        return self._places[target, language]

    def _send(self, job: Job, seconds: float, notes: tuple[str, ...], ending: threading.Event) -> Judgement:
        """Have a job judged, sent again where only others were at fault; MOST_SENDS times at most."""
        from warpsmith.kernels_db.spec.errors import SpecError  # noqa: PLC0415 - as above

        for _ in range(MOST_SENDS):
            self._check_open()
            ticket = self._line.enter()
            moved = True
            try:
                watch = partial(self._watch, ticket, seconds, ending)
                return judgement(job, self._client.judge(job, math.inf, on_wait=watch), notes)
            except JobRefused as error:
                raise SpecError(error.field, error.found, error.expected) from None
            except JudgeTimeout as error:
                if error.at_work:
                    return no_verdict(job, "timeout", f"no verdict within {seconds:g} s", notes)
                moved = False
            except JudgeDied as error:
                if not error.cut_off:
                    return no_verdict(job, "died", str(error), notes)
            finally:
                self._line.leave(ticket, moved=moved)
        return no_verdict(job, "died", f"other candidates ended the judge {MOST_SENDS} times", notes)

    def _watch(self, ticket: object, seconds: float, ending: threading.Event) -> None:
        """Raise JudgeClosed or JudgeTimeout where a job is to wait no longer."""
        if ending.is_set() or self._closing.is_set():
            raise JudgeClosed("the judge was closed, or the candidate taken back")
        if self._line.overdue(ticket, seconds):
            raise JudgeTimeout("no verdict in time")

    def _seconds(self, timeout: float | None) -> float:
        from warpsmith.kernels_db.spec.errors import SpecError  # noqa: PLC0415 - as above

        if timeout is None:
            return self._timeout_s
        if isinstance(timeout, bool) or not isinstance(timeout, int | float) or not timeout > 0:
            raise SpecError("timeout", timeout, "seconds, more than 0")
        return timeout

    def _check_open(self) -> None:
        if os.getpid() != self._owner:
            raise JudgeClosed(f"the judge is of process {self._owner}: make one in each process, after it began")
        if self._closing.is_set():
            raise JudgeClosed("the judge was closed")


def _in_order(numbered: Iterator[tuple[int, Judgement]]) -> Iterator[Judgement]:
    early: dict[int, Judgement] = {}
    wanted = 0
    for number, one in numbered:
        early[number] = one
        while wanted in early:
            yield early.pop(wanted)
            wanted += 1


def _close_client(client: JudgeClient, owner: int) -> None:
    """End a judge; nothing in a process that was forked from its owner."""
    if os.getpid() == owner:
        client.close()
