"""One job's passage through the gates after compiling: reference, admission, screen, verify, time, physics."""

from __future__ import annotations

import math
import random
import secrets
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch

from kernels_db.job import Failure, Gate, Job, ResolvedWorkload, VerdictWord, WorkloadVerdict
from workers.candidate import own_kernels
from workers.judge import admission, families, quarantine, timing
from workers.judge.baselines import (
    OpRunners,
    ReferenceFault,
    baseline_modes,
    input_specs,
    result_positions,
    result_specs,
    slots_for,
    workload_key,
)
from workers.judge.buffers import TensorSpec
from workers.judge.candidates import Prepared
from workers.judge.compare import first_difference
from workers.judge.contender import Contender, ContenderFault, Mode
from workers.judge.families import Family
from workers.judge.host import BUSY
from workers.judge.inputs import CPU, InputSource
from workers.judge.kernel_names import foreign
from workers.judge.physics import Peaks
from workers.judge.probe import StartProbe
from workers.judge.questions import Unsuited, ask, declared
from workers.judge.quiet import QUIET
from workers.judge.refusals import refusal
from workers.judge.trial import Trial, Wrong, failure_of
from workers.judge.verdict import Report, Stopped, wrong_value

SCREEN_SEEDS, VERIFY_SEEDS = 2, 3
CHECK_SLOTS = 3
"""Slots that checked calls rotate through: fresh pointers for each."""

REPEATS, MOST_BETWEEN = 2, 3
"""How often a call is repeated on the same values, and the most calls on other values before each."""

TRACING_S = 30.0
"""Time for the driver's tracing to begin."""

INTERPRETED_CALL_S = 60.0
"""Longest call under Triton's interpreter, which runs a kernel thousands of times slower than a device."""

Outcome = tuple[VerdictWord, Gate, str, Failure | None]
Make = Callable[[str, TensorSpec, int], torch.Tensor]


@dataclass
class Passage:
    """What the gates of one job share. `exclusive()` holds the clock, `on_device()` the device for whatever else runs
    on it, where that would disturb the clock; `start_probe` starts the memory probe.
    """

    job: Job
    report: Report
    prepared: Prepared | None
    workloads: list[ResolvedWorkload]
    runners: OpRunners
    peaks: Peaks
    make: Make
    start_probe: StartProbe
    exclusive: Callable[[], AbstractContextManager[None]]
    on_device: Callable[[], AbstractContextManager[None]] = nullcontext
    device: torch.device = CPU

    def __post_init__(self) -> None:
        # Secret: drawn from the system for each job. Only tests fix it.
        self.rng = random.Random(self.job.get("seed", secrets.randbits(128)))  # noqa: S311 - seeded as said above
        self.unsuited: set[str] = set()

    def reference(self) -> None:
        """Check the reference on every workload and derive the tolerances. Raises Stopped."""
        with self.report.gate("reference"), self.on_device():
            for workload in list(self.workloads):
                source = partial(self._source, workload)
                if workload.get("derived"):
                    try:
                        self.runners.learn(workload, source)
                    except ReferenceFault as fault:
                        self.workloads.remove(workload)
                        where = ", ".join(f"{name} {size}" for name, size in workload["axes"].items())
                        self.report.notes.append(
                            f"hold-out at {where} left out: the reference is not right there ({fault})"
                        )
                        continue
                with _reference_at_fault(workload):
                    self.runners.learn(workload, source)
                self.report.workloads.append(_untimed(workload, self.runners))

    def contest(self, start_candidate: Callable[[], Contender] | None) -> Outcome:
        """Take the candidate through screen, verify and time; without one, examine the op and time the baselines.
        Raises Stopped.
        """
        if start_candidate is None:
            with self.on_device():
                self._admit()
                return self._timed(None)
        with self.report.gate("screen"), _candidate_at_fault("screen", None):
            candidate = start_candidate()
        try:
            interpreted = self.prepared is not None and self.prepared.interpreted
            with self.on_device():
                self._check(candidate, self.workloads if interpreted else self._bench(), SCREEN_SEEDS, "screen")
                if self.job["level"] == "verify":
                    self._check(candidate, self.workloads, VERIFY_SEEDS, "verify")
                    self._verify(candidate, interpreted)
                outcome = self._timed(candidate)
                if self.job["level"] == "verify" and self.device.type == "cuda":
                    self._name_kernels(candidate)
                return outcome
        finally:
            candidate.close()

    def _timed(self, candidate: Contender | None) -> Outcome:
        if not self.job["target"].startswith(self.device.type):
            return "ambiguous", "time", _no_device(self.job, self.prepared), None
        with self.report.gate("time"):
            scored = [self._time(workload, candidate) for workload in self._bench()]
        if candidate is None:
            return "accepted", "time", "the reference is sound and the baselines are measured", None
        self._believable()
        checked = "every workload" if self.job["level"] == "verify" else "the bench workloads"
        if not scored:
            return "accepted", "time", f"right on {checked}; no bench workload, so nothing was timed", None
        self.report.score, interval = timing.score(scored, self._number(), timing.OFFSET_US[self.device.type])
        self.report.score_ci95 = list(interval)
        spread = f"{interval[0]:.3g} to {interval[1]:.3g}"
        reason = f"right on {checked}; {self.report.score:.3g} times as fast as the fastest baseline ({spread})"
        return "accepted", "time", reason, None

    def _admit(self) -> None:
        """Whether the spec tells wrong answers from right ones, and lets PyTorch's own pass. Raises Stopped."""
        with self.report.gate("admission"):
            job = self.job
            self.report.admission = admission.examine(job["op"], self.workloads, self.runners, self._source, self.rng)
            if (failure := refusal(self.report.admission)) is not None:
                raise Stopped("rejected", "admission", failure["message"], failure)
            if job["target"].startswith(self.device.type):
                self._compiled_passes()

    def _compiled_passes(self) -> None:
        """Raise Stopped where compiled PyTorch misses the op's own tolerance: so would most kernels. A derived
        tolerance that it misses is told.
        """
        workload = min(self._bench() or self.workloads, key=families.elements)
        modes = self._available(workload, baseline_modes(self.job["op"]))
        question = declared(self.runners, workload, self._source(workload))
        for mode in modes:
            found = self.runners.run(mode, workload, question.values)
            compared = self.runners.check(found, question.expected, question.limits)
            for (name, _), limit, one in zip(result_positions(workload), question.limits, compared, strict=True):
                if one.passed:
                    continue
                wrong = wrong_value(one, question.place, name, limit is not None and limit.own is not None)
                if limit is None or limit.own is None:
                    self._note(f"baseline {mode} is outside the tolerance: {wrong['message']}")
                    continue
                message = f"PyTorch itself ({mode}) misses the op's own tolerance: {wrong['message']}"
                expected = "a tolerance that PyTorch meets, or none, to have it derived from PyTorch's own error"
                failure: Failure = {**wrong, "kind": "admission", "message": message, "expected": expected}
                raise Stopped("rejected", "admission", message, {**failure, "field": f"outputs.{name}.tolerance"})

    def _note(self, text: str) -> None:
        if text not in self.report.notes:
            self.report.notes.append(text)

    def _check(self, candidate: Contender, workloads: list[ResolvedWorkload], seeds: int, gate: Gate) -> None:
        """Calls on the declared inputs, each with a seed of its own."""
        for workload in workloads:
            with self._bound(candidate, workload, gate):
                for _ in range(seeds):
                    trial = self._trial(workload, candidate)
                    try:
                        trial.check_candidate()
                    finally:
                        self._note_error(workload, trial)

    def _verify(self, candidate: Contender, interpreted: bool) -> None:
        """What only verification asks: input families, and the same inputs again. An interpreter is asked little."""
        asked = families.plan(self.workloads, self.rng, sparing=interpreted)
        for workload in self.workloads:
            if interpreted and workload["id"] not in asked:
                continue
            with self._bound(candidate, workload, "verify"):
                if not interpreted:
                    self._entry(workload)["repeatable"] = self._repeat(workload, candidate)
                for family in asked[workload["id"]]:
                    self._ask(workload, family, candidate)
        if self.unsuited:
            self.report.notes.append(f"input families that do not suit the op: {', '.join(sorted(self.unsuited))}")

    def _ask(self, workload: ResolvedWorkload, family: Family, candidate: Contender) -> None:
        """One call on an input family. Raises Wrong, ContenderFault."""
        trial = self._trial(workload, candidate, family)
        try:
            question = ask(self.runners, workload, family, trial.source, self.job["op"]["math"], self.rng)
        except Unsuited:
            self.unsuited.add(family.name)
            return
        limits = [limit for limit in question.limits if limit is not None and limit.own is None]
        largest = max((limit.l2 for limit in limits if math.isfinite(limit.l2)), default=None)
        try:
            trial.check_candidate(question)
        finally:
            entry = {"error": trial.candidate_l2, "limit": largest}
            self._entry(workload).setdefault("families", {})[family.name] = entry

    def _repeat(self, workload: ResolvedWorkload, candidate: Contender) -> bool:
        """Whether calls on the same values, with other pointers and after other work, give the same bits."""
        trial = self._trial(workload, candidate)
        question = trial.question()
        first = [tensor.clone() for tensor in trial.check_candidate(question)]
        same = True
        for _ in range(REPEATS):
            for _ in range(self.rng.randrange(MOST_BETWEEN + 1)):
                trial.call_candidate()
            again = trial.check_candidate(question)
            same &= all(first_difference(one, other) is None for one, other in zip(again, first, strict=True))
        return same

    def _name_kernels(self, candidate: Contender) -> None:
        """Note which kernels a call runs on each bench workload. Raises Stopped for one that is not the candidate's.

        Comes last: tracing slows whatever the runner does afterwards.
        """
        assert self.job["candidate"] is not None
        own = own_kernels(self.job["candidate"]["source"], self.job["candidate"]["language"])
        for workload in self._bench():
            with self._bound(candidate, workload, "verify"):
                candidate.fill(0, self._source(workload).draw())
                names = candidate.kernels(0, self.job["limits"]["call_s"] + TRACING_S)
            self._entry(workload)["kernels"] = names
            if strangers := foreign(names, own, self.job["op"]["library_calls"]):
                message = f"workload {workload['id']}: ran {strangers[0]}, which is none of the candidate's own kernels"
                failure: Failure = {"kind": "foreign_kernel", "message": message, "workload": workload["id"]}
                failure |= {"found": strangers[0], "expected": ", ".join(sorted(own))}
                raise Stopped("rejected", "verify", message, failure)

    @contextmanager
    def _bound(self, candidate: Contender, workload: ResolvedWorkload, gate: Gate) -> Iterator[None]:
        """The candidate bound to a workload; what it does wrong inside ends the job at `gate`."""
        with self.report.gate(gate), _candidate_at_fault(gate, workload):
            slots = min(CHECK_SLOTS, slots_for("candidate", workload, self.device))
            candidate.bind(input_specs(workload), result_specs(workload), slots)
            yield

    def _trial(self, workload: ResolvedWorkload, candidate: Contender, family: Family | None = None) -> Trial:
        interpreted = self.prepared is not None and self.prepared.interpreted
        call_s = INTERPRETED_CALL_S if interpreted else self.job["limits"]["call_s"]
        return Trial(workload, self.runners, candidate, call_s, self._source(workload, family), self.rng)

    def _time(self, workload: ResolvedWorkload, candidate: Contender | None) -> tuple[list[float], list[float]]:
        """Samples of the fastest baseline and of the candidate (empty without one)."""
        job, runners = self.job, self.runners
        plan = timing.plan_for(job["level"] == "verify", self.device.type, job["limits"]["time_s"])
        modes = baseline_modes(job["op"])
        if job["level"] == "screen":
            modes = runners.to_beat(workload, modes)
        modes = self._available(workload, modes)  # compiling needs no clock of its own
        source = self._source(workload)
        with self.exclusive(), QUIET.timing(), _candidate_at_fault("time", workload):
            self.peaks.measure_for(workload, job["op"]["math"], self.start_probe)
            if candidate is not None:
                slots = slots_for("candidate", workload, self.device)
                candidate.bind(input_specs(workload), result_specs(workload), slots, runners.bound_to(workload))
            trial = Trial(workload, runners, candidate, job["limits"]["call_s"], source, self.rng)
            try:
                samples = trial.time(modes, plan)
            finally:
                self._note_error(workload, trial)
        self._enter(workload, samples, modes)
        self.report.exchange_us = trial.exchange_us
        if trial.clocks_us:
            self._entry(workload)["clocks_us"] = trial.clocks_us
        best = timing.fastest(samples, modes)
        medians: dict[str, float] = {mode: float(np.median(samples[mode])) for mode in modes}
        runners.note(workload, baseline_modes(job["op"]), medians)
        for mode, misses in trial.baseline_misses.items():
            times = f"in {misses} checked timed calls of {workload['id']}"
            self.report.notes.append(f"baseline {mode} was outside the tolerance {times}")
        return samples[best], samples.get("candidate", [])

    def _believable(self) -> None:
        """Raise Stopped where a time is too good to be true. One workload is enough: a mean over all would hide it."""
        for workload in self._bench():
            entry = self._entry(workload)
            baseline = min(time for name, time in entry["time_us"].items() if name != "candidate")
            if self._doubt(entry, baseline) is None:
                continue
            # The peak may have been measured in a bad moment: it gets another chance before the kernel loses its own.
            with self.exclusive(), QUIET.timing():
                self.peaks.measure_for(workload, self.job["op"]["math"], self.start_probe, again=True)
            self._limit(workload, entry)
            if (doubt := self._doubt(entry, baseline)) is not None:
                reason = f"workload {workload['id']}: {doubt}"
                failure: Failure = {
                    "kind": "physics",
                    "message": reason,
                    "workload": workload["id"],
                    "found": entry["time_us"]["candidate"],
                    "expected": entry["limit_us"],
                }
                busiest = max(self.report.others, default=0.0)
                if busiest > BUSY:  # neighbours slow the probe and the baselines as they slow anything
                    reason += f"; others took {busiest:.0%} of this host meanwhile: judge it again when it is quiet"
                    raise Stopped("ambiguous", "physics", f"too good to be true, or to be told: {reason}", failure)
                raise Stopped("quarantined", "physics", f"too good to be true: {reason}", failure)

    def _doubt(self, entry: WorkloadVerdict, baseline_us: float) -> str | None:
        assert entry["limit_us"] is not None
        assert entry["limit_by"] is not None
        return quarantine.decide(
            time_us=entry["time_us"]["candidate"],
            limit_us=entry["limit_us"],
            limit_by=entry["limit_by"],
            baseline_us=baseline_us,
            device=self.device.type,
        )

    def _available(self, workload: ResolvedWorkload, wanted: list[Mode]) -> list[Mode]:
        """The baselines that run on a workload, compiled. Eager always does: the reference gate ran it."""
        modes: list[Mode] = []
        values = self._source(workload).draw()
        unavailable = self.runners.unavailable
        for mode in wanted:
            key = (mode, workload_key(workload))
            if key not in unavailable:
                try:
                    self.runners.run(mode, workload, values)
                    modes.append(mode)
                except ContenderFault as fault:
                    if fault.external or mode == "eager":
                        raise
                    self.runners.drop(mode)
                    unavailable[key] = f"{fault.kind}: {(str(fault).splitlines() or [''])[0][:300]}"
            if key in unavailable:
                self._note(f"baseline {mode} does not run on {workload['id']} ({unavailable[key]})")
        if not modes and wanted != (every := baseline_modes(self.job["op"])):
            return self._available(workload, every)  # the one that was fastest once runs no more
        if not modes:
            message = f"no baseline runs on workload {workload['id']}"
            failure: Failure = {
                "kind": "raises",
                "message": message,
                "field": "op.baselines",
                "workload": workload["id"],
            }
            raise Stopped("rejected", "reference", message, failure)
        return modes

    def _enter(self, workload: ResolvedWorkload, samples: timing.Samples, modes: list[Mode]) -> None:
        entry = self._entry(workload)
        entry["samples"] = {name: [round(value, 3) for value in values] for name, values in samples.items()}
        entry["time_us"] = {name: float(np.median(values)) for name, values in samples.items()}
        if "candidate" in samples:
            for mode in modes:
                ratio, interval = timing.ratio_with_interval(
                    samples[mode], samples["candidate"], self._number(), timing.OFFSET_US[self.device.type]
                )
                entry["speedup"][mode] = ratio
                entry["ci95"][mode] = list(interval)
        self._limit(workload, entry)

    def _limit(self, workload: ResolvedWorkload, entry: WorkloadVerdict) -> None:
        limit_us, entry["limit_by"] = self.peaks.limit(workload, self.job["op"]["math"])
        entry["limit_us"] = limit_us
        judged = entry["time_us"].get("candidate", entry["time_us"].get("eager"))
        entry["limit_fraction"] = limit_us / judged if judged else None

    def _bench(self) -> list[ResolvedWorkload]:
        return [workload for workload in self.workloads if workload["role"] == "bench"]

    def _entry(self, workload: ResolvedWorkload) -> WorkloadVerdict:
        return next(entry for entry in self.report.workloads if entry["id"] == workload["id"])

    def _note_error(self, workload: ResolvedWorkload, trial: Trial) -> None:
        errors = self._entry(workload)["error"]
        if trial.candidate_l2 is not None:
            errors["candidate"] = max(trial.candidate_l2, errors["candidate"] or 0.0)

    def _number(self) -> int:
        return self.rng.getrandbits(62)

    def _source(self, workload: ResolvedWorkload, family: Family | None = None) -> InputSource:
        return InputSource(workload["inputs"], self._number(), self.make, self.device, family)


@contextmanager
def _candidate_at_fault(gate: Gate, workload: ResolvedWorkload | None) -> Iterator[None]:
    """Turn a candidate's fault inside into the end of the job at this gate."""
    try:
        yield
    except Wrong as wrong:
        raise Stopped("rejected", gate, str(wrong), wrong.failure) from wrong
    except ContenderFault as fault:
        if fault.external or fault.contender != "candidate":
            raise
        failure = failure_of(fault, workload["id"] if workload else None)
        raise Stopped("rejected", gate, failure["message"], failure) from fault


@contextmanager
def _reference_at_fault(workload: ResolvedWorkload) -> Iterator[None]:
    """Turn the reference's fault inside into the end of the job."""
    try:
        yield
    except ReferenceFault as fault:
        message = f"reference: {fault} (workload {workload['id']})"
        failure: Failure = {
            "kind": fault.kind,
            "message": message,
            "field": "reference",
            "workload": workload["id"],
            "found": fault.details.get("found"),
            "expected": fault.details.get("expected"),
        }
        if fault.details.get("log"):
            failure["log"] = str(fault.details["log"])
        raise Stopped("rejected", "reference", message, failure) from fault


def _untimed(workload: ResolvedWorkload, runners: OpRunners) -> WorkloadVerdict:
    limits = [limit for limit in runners.tolerances[workload_key(workload)] if limit is not None]
    return {
        "id": workload["id"],
        "role": workload["role"],
        "error": {
            "candidate": None,
            "eager": max((limit.eager_l2 for limit in limits), default=0.0),
            "limit": max((limit.l2 for limit in limits if limit.own is None), default=None),
        },
        "time_us": {},
        "speedup": {},
        "ci95": {},
        "limit_us": None,
        "limit_by": None,
        "limit_fraction": None,
        "samples": {},
    }


def _no_device(job: Job, prepared: Prepared | None) -> str:
    if prepared is None:
        return "no CUDA device: the reference was checked on the CPU, nothing was timed"
    arch = job["target"].partition(":")[2]
    return f"no CUDA device: checked under Triton's interpreter, compiled for {arch}, not timed"
