"""The sweep: times a candidate's configurations on the bench workloads, and goes on with the fastest.

Successive halving (K. Jamieson and A. Talwalkar, "Non-stochastic best arm identification and hyperparameter
optimization", AISTATS 2016): each round times what is left, on twice the calls, and keeps the better half by the mean
over the workloads, and beside it the fastest on each workload. The first round takes configurations as they are
compiled, as many as its share of the sweep's seconds can time by what those before took, and has no more compiled; each
later one keeps no more than it can time in half of what is left. Every timing checks calls in full, so a configuration
that is wrong is out. One whose first calls on a workload are clearly slower than the fastest so far is timed no further
there.

All that the sweep decides is which configuration is judged: that one passes every gate like any candidate, in a process
of its own, on values and under a clock of its own. So the sweep may be quick where the judge may not. The runners of
several configurations are started before the device is taken, and stand still until each one's turn; they share nothing
and are closed as they have had it. A GPU's events are believed without the referee's clock beside them. A candidate
that makes one of its configurations look faster or slower than it is gets a worse choice, and no better figure.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field

import numpy as np

from warpsmith.kernels_db.job.documents import ResolvedWorkload
from warpsmith.kernels_db.job.means import weight_of
from warpsmith.kernels_db.job.sweep_documents import SWEEP_S, SweptConfiguration, mean_ratio
from warpsmith.workers.judge.clock import timing
from warpsmith.workers.judge.gates.candidates import FIRST_S, refuse_twin
from warpsmith.workers.judge.gates.configurations import Configurations, Variant
from warpsmith.workers.judge.gates.job_run import JobRun, candidate_at_fault
from warpsmith.workers.judge.gates.verdict import Stopped
from warpsmith.workers.judge.gates.workload_run import WorkloadRun
from warpsmith.workers.judge.machine.timing_guard import QUIET
from warpsmith.workers.judge.runner.runner_handle import RunnerHandle

ROUNDS = 4
FIRST_BLOCKS = 3
"""Blocks of a workload's timing in the first round; each round doubles them."""

LAST = 2
"""Configurations after which nothing more is to be told apart that the verdict's own timing would not."""

FIRST_SHARE = 2 / 3
"""Of a sweep's seconds, those of its first round, where that leaves configurations untimed."""

FEWEST = 8
"""Configurations that the first round times before the later ones get seconds.

Among so few another configuration promises more than telling apart by a percent those that there are.
"""

HOPELESS = 2.0
"""Times as long as the fastest so far on a workload that first calls take after which a configuration is left there."""

STARTS_S = 60.0
"""Seconds of starting runners that a sweep has beside its device seconds; what goes beyond counts towards these."""

LEAST_S = 1e-6
"""Seconds that a timing is taken to need at least: clocks may read none."""

LEAST_US, MOST_US = 1e-3, 1e9
"""Microseconds within which a time is kept: a GPU's runner tells its own, and may tell 0, which has no ratio."""

LONGEST_FAILURE = 300


@dataclass
class _Entry:
    variant: Variant
    history: list[dict[str, float]] = field(default_factory=list)
    failure: Stopped | None = None
    left_early: set[str] = field(default_factory=set)
    """Workloads on which its first round ended after its first calls, whose times are theirs."""

    is_out: bool = False
    """Whether it was clearly slower on every workload: it was not checked, and is not timed again."""

    @property
    def rounds(self) -> int:
        """How many rounds timed it."""
        return len(self.history)

    @property
    def time_us(self) -> dict[str, float]:
        """Its latest times; nothing where it is out."""
        return self.history[-1] if self.history and self.failure is None else {}

    def beside(self, chosen: _Entry) -> dict[str, float]:
        """Return its times as they would be in the chosen one's last round, but for those that are `unscaled`.

        The machine may have been slower in one round than in another, so it is compared within its own last one.
        """
        if not self.time_us:
            return {}
        then, last, as_read = chosen.history[self.rounds - 1], chosen.time_us, self.unscaled(chosen)
        return {
            name: value if name in as_read else value * last[name] / then[name] for name, value in self.time_us.items()
        }

    def unscaled(self, chosen: _Entry) -> set[str]:
        """Return the workloads on which its times are those of another round than the chosen one's.

        There one of the two was left early in that round: first calls say nothing of how slow the machine was.
        """
        if self.rounds != 1 or chosen.rounds == 1 or self.failure is not None:
            return set()
        return self.left_early | chosen.left_early

    def document(self, chosen: _Entry) -> SweptConfiguration:
        """Write it for the verdict, beside the chosen one."""
        found: SweptConfiguration = {
            "values": dict(self.variant.values),
            "time_us": {name: max(round(value, 3), LEAST_US) for name, value in self.beside(chosen).items()},
            "rounds": self.rounds,
        }
        if unscaled := self.unscaled(chosen):
            found["unscaled"] = sorted(unscaled)
        if self.failure is not None:
            found["failure"] = str(self.failure)[:LONGEST_FAILURE]
        return found


class _Seconds:
    """The device seconds of one sweep, the limit that they have, and what a timing takes of them.

    On a GPU the device is held for all of a timing, on a CPU while a clock runs. Runners start without it, and a source
    may take long to load or never end: beyond STARTS_S starts count as if they held it.
    """

    def __init__(self, job_run: JobRun) -> None:
        self._report = job_run.report
        self._before = self._report.seconds.get("exclusive", 0.0)
        own = job_run.job["limits"].get("sweep_s")
        self.limit = SWEEP_S if own is None else min(own, SWEEP_S)
        self._timings: list[tuple[float, float, bool]] = []
        self._start_s = 0.0
        self.short = False
        """Whether the limit kept a configuration from being timed that would have been."""

    @property
    def held(self) -> float:
        """Device seconds so far."""
        return self._report.seconds.get("exclusive", 0.0) - self._before

    @property
    def spent(self) -> float:
        """Seconds that count towards the limit: those of the device, and of starts what goes beyond STARTS_S."""
        return self.held + max(0.0, self._start_s - STARTS_S)

    @property
    def left(self) -> float:
        """Seconds until the limit."""
        return self.limit - self.spent

    @contextmanager
    def starting(self, job_run: JobRun, entries: Sequence[_Entry]) -> Iterator[list[RunnerHandle | Stopped]]:
        """Start the runners of some configurations, as `JobRun.variants` does, and count the seconds of that."""
        began = time.monotonic()
        with job_run.variants([entry.variant for entry in entries]) as runners:
            self._start_s += time.monotonic() - began
            yield runners

    def describe(self) -> str:
        """Write what the limit ended the sweep after."""
        device = f"{self.held:.3g} device seconds"
        return device if self._start_s <= STARTS_S else f"{device} and {self._start_s:.3g} s of starting runners"

    def add(self, held: float, clock: float, number: int, *, whole: bool = True) -> None:
        """Take in what one timing of round `number` took, and what of that grows with its blocks.

        whole: whether it was timed to its end on every workload.
        """
        self._timings.append((held - clock, clock / (1 << number), whole))

    def cost(self, number: int) -> float:
        """Estimate what a timing of round `number` takes, by the mean of those before.

        Later rounds have none that is left early.
        """
        timings = [(once, clock) for once, clock, whole in self._timings if whole or number == 0]
        if not timings:
            return FIRST_S
        once, clock = (math.fsum(parts) / len(timings) for parts in zip(*timings, strict=True))
        return max(once + clock * 2.0**number, LEAST_S)

    def first_room(self, timed: int) -> int:
        """Return how many more the first round can time, `timed` of which it has."""
        most = int(self.left / self.cost(0))
        share = int((self.left - (1 - FIRST_SHARE) * self.limit) / self.cost(0))
        return max(0, min(most, max(share, FEWEST - timed)))

    def later_room(self, number: int) -> int:
        """Return how many a later round can time: in half of what is left, in all of it where no round follows."""
        room = int(self.left / 2 / self.cost(number))
        return int(self.left / self.cost(number)) if room <= LAST or number == ROUNDS - 1 else room


def sweep(job_run: JobRun) -> None:
    """Choose the fastest configuration of a candidate that leaves some open; the job goes on with it.

    Raises Stopped where none is right, ForkServerDied.
    """
    configurations = None if job_run.prepared is None else job_run.prepared.configurations
    workloads = job_run.timed_workloads()
    if configurations is None:
        return
    if not workloads:
        configurations.close()
        return
    started = time.monotonic()
    weights = {workload["id"]: weight_of(workload) for workload in workloads}
    seconds = _Seconds(job_run)
    try:
        entries = _time_first(job_run, configurations, workloads, seconds)
        _halve(job_run, entries, workloads, weights, seconds)
    finally:
        configurations.close()
        job_run.report.sweep_seconds = round(seconds.held, 4)
    timed = [entry for entry in entries if entry.failure is None and entry.rounds and not entry.is_out]
    if not timed:  # one that is out was never checked, so it is no candidate where all others failed
        raise _first_failure(entries)
    last = max(entry.rounds for entry in timed)
    final = [entry for entry in timed if entry.rounds == last]
    chosen = min(final, key=lambda entry: mean_ratio(entry.time_us, final[0].time_us, weights))

    def place(entry: _Entry) -> tuple[bool, float]:
        times = entry.beside(chosen)
        return entry is not chosen, mean_ratio(times, chosen.time_us, weights) if times else float("inf")

    job_run.report.sweep = {
        "chosen": dict(chosen.variant.values),
        "configurations": [entry.document(chosen) for entry in sorted(entries, key=place)],
        "seconds": round(time.monotonic() - started, 3),
        "compile_s": round(configurations.seconds, 3),
    }
    _note_left_out(job_run, configurations, len(entries), seconds)
    job_run.choose(chosen.variant)
    refuse_twin(job_run.job, (job_run.report.compile or {}).get("digest"))


def _first_failure(entries: Sequence[_Entry]) -> Stopped:
    """Return why the first of those failed that came as far as any: what is wrong says more than what was refused."""
    failed = [(entry.rounds, entry.failure) for entry in entries if entry.failure is not None]
    return max(failed, key=lambda one: one[0])[1]


def _note_left_out(job_run: JobRun, configurations: Configurations, known: int, seconds: _Seconds) -> None:
    """Say how many configurations were not timed, how many of those not compiled, and what ended the sweep."""
    assert job_run.report.sweep is not None
    left_out, not_compiled = configurations.declared - known, configurations.declared - configurations.compiled
    limit_s = job_run.job["limits"].get("sweep_s", math.inf)
    if left_out:
        job_run.report.sweep["left_out"] = left_out
        job_run.report.sweep["not_compiled"] = not_compiled
    if seconds.short and limit_s < SWEEP_S:
        job_run.report.sweep["limit_s"] = limit_s
    elif not left_out:
        return
    what = "the sweep" if limit_s >= SWEEP_S else "limits.sweep_s: the sweep"
    untimed = f"{left_out} of {configurations.declared} configurations not timed, {not_compiled} of them not compiled"
    ended = f"{what} ended after {seconds.describe()}" if seconds.short else "no time to compile more"
    job_run.note(f"{ended}, {untimed if left_out else 'before its last round'}")


def _time_first(
    job_run: JobRun, configurations: Configurations, workloads: Sequence[ResolvedWorkload], seconds: _Seconds
) -> list[_Entry]:
    """Time configurations once each, as they are compiled; those that are refused come without times.

    At least one is timed, and more than the limit has room for until one is right, for no more than SWEEP_S.
    """
    entries: list[_Entry] = []

    def room(*, started: bool = False) -> int:
        right = any(entry.failure is None for entry in entries)
        found = seconds.first_room(sum(entry.rounds > 0 for entry in entries))
        spent = seconds.held if started else seconds.spent  # what is started costs no further start
        return found if right or spent >= SWEEP_S else max(found, 1)

    while room():
        taken = _take(job_run, configurations, room())
        if not taken:
            return entries
        entries += [entry for entry in taken if entry.failure is not None]
        compiled = [entry for entry in taken if entry.failure is None]
        with seconds.starting(job_run, compiled) as runners:
            for entry, runner in zip(compiled, runners, strict=True):
                if not isinstance(runner, Stopped) and not room(started=True):
                    break
                _time(job_run, entry, runner, workloads, seconds, _fastest(entries))
                entries.append(entry)
    seconds.short = seconds.short or len(entries) < configurations.declared
    return entries


def _take(job_run: JobRun, configurations: Configurations, room: int) -> list[_Entry]:
    """Wait for the next configuration, and take with it those that are ready, as many as are started side by side."""
    taken: list[_Entry] = []
    for ahead in range(min(room, job_run.started_at_once())):
        if ahead and not configurations.is_ready():
            break
        with nullcontext() if configurations.is_ready() else job_run.report.gate("compile"):
            variant = configurations.take(room - ahead)
        if variant is None:
            break
        taken.append(_Entry(variant, failure=variant.refused))
    return taken


def _fastest(entries: Sequence[_Entry]) -> dict[str, float]:
    """Return the shortest time by workload so far."""
    found: dict[str, float] = {}
    for entry in entries:
        for name, time_us in entry.time_us.items():
            found[name] = min(time_us, found.get(name, math.inf))
    return found


def _halve(
    job_run: JobRun,
    entries: Sequence[_Entry],
    workloads: Sequence[ResolvedWorkload],
    weights: dict[str, float],
    seconds: _Seconds,
) -> None:
    """Time the better half again, on twice the blocks, and so on while there are more than LAST and seconds left."""
    left = [entry for entry in entries if entry.failure is None and not entry.is_out]
    for number in range(1, ROUNDS):
        if len(left) <= LAST:
            return
        first = left[0].time_us
        left.sort(key=lambda entry: mean_ratio(entry.time_us, first, weights))
        fastest = {id(min(left, key=lambda entry: entry.time_us[name])) for name in weights}
        half = (len(left) + 1) // 2
        left = left[:half] + [entry for entry in left[half:] if id(entry) in fastest]
        room = seconds.later_room(number)
        if room < LAST:  # one alone is compared with nothing
            seconds.short = True
            return
        # The best comes first, so that a round that ends early has it; the rest in any order.
        others = left[1:room]
        job_run.rng.shuffle(others)
        left = [*left[:1], *others]
        together = job_run.started_at_once()
        for first_of_them in range(0, len(left), together):
            if seconds.left <= 0:
                seconds.short = True
                return
            some = left[first_of_them : first_of_them + together]
            with seconds.starting(job_run, some) as runners:
                for entry, runner in zip(some, runners, strict=True):
                    if seconds.left <= 0:
                        seconds.short = True
                        return
                    _time(job_run, entry, runner, workloads, seconds, {})
        left = [entry for entry in left if entry.failure is None]


def _time(
    job_run: JobRun,
    entry: _Entry,
    runner: RunnerHandle | Stopped,
    workloads: Sequence[ResolvedWorkload],
    seconds: _Seconds,
    fastest: Mapping[str, float],
) -> None:
    """Time one configuration on every workload, in its own runner, which is closed; a failure is kept with it.

    runner: or why it has none. fastest: by workload, the time beside which it may be clearly slower.
    """
    found: dict[str, float] = {}
    left_early: set[str] = set()
    clock_s, before = 0.0, seconds.held
    try:
        if isinstance(runner, Stopped):
            raise runner
        with job_run.report.gate("time"), job_run.on_device():
            for workload in workloads:
                name = workload["id"]
                plan = _plan(job_run, entry.rounds, fastest.get(name, math.inf))
                source = job_run.source(workload)
                with candidate_at_fault("screen", workload):
                    job_run.bind_for_timing(runner, workload)
                    runner.rest()  # on a CPU the clock may still be another's
                with job_run.exclusive(), QUIET.timing(), candidate_at_fault("screen", workload):
                    calls = WorkloadRun(
                        workload, job_run.runners, runner, job_run.job["limits"]["call_s"], source, job_run.rng
                    )
                    began = time.monotonic()
                    reading = calls.time([], plan)
                    found[name] = _median_us(reading.samples["candidate"])
                    clock_s += time.monotonic() - began
                    if reading.hopeless:
                        left_early.add(name)
    except Stopped as stopped:
        entry.failure = stopped
        return
    finally:
        if isinstance(runner, RunnerHandle):
            runner.close()
    seconds.add(seconds.held - before, clock_s, entry.rounds, whole=not left_early)
    entry.left_early |= left_early
    entry.is_out = len(left_early) == len(workloads)
    entry.history.append(found)


def _median_us(samples: Sequence[float]) -> float:
    """Return the median of samples as a time that has a ratio to any other, whatever a runner told."""
    return min(max(float(np.median(samples)), LEAST_US), MOST_US)


def _plan(job_run: JobRun, number: int, fastest_us: float) -> timing.Plan:
    """Return the plan of one timing in a round; `fastest_us`: the shortest time on the workload so far."""
    blocks = FIRST_BLOCKS << number
    time_s = job_run.job["limits"]["time_s"]
    return timing.Plan(blocks, blocks, time_s, 1, 0.9, 0.0, HOPELESS * fastest_us, against_wall=False)
