"""The referee: takes a job through the gates. It holds the seeds, the expected values, the clock and the verdict, and runs no code but ours.

Gates, in order; the first that fails ends the job: gate, compile, memory, reference, screen, verify, time. A fork server or a runner
that is killed from outside costs one repetition of the job, not a verdict.
"""

from __future__ import annotations

import fcntl
import itertools
import os
import random
import secrets
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch

from kernels_db.job import Failure, Gate, Job, ResolvedWorkload, Verdict, VerdictWord, WorkloadVerdict
from kernels_db.runtime.cache import CACHE_VARIABLE
from workers.judge import compiler_cache, footprint, languages, timing
from workers.judge.baselines import (
    OpRunners,
    ReferenceFault,
    WarmOps,
    baseline_modes,
    input_specs,
    result_specs,
    slots_for,
    workload_key,
)
from workers.judge.buffers import TensorSpec
from workers.judge.candidates import Prepared, kernel_cache, prepare
from workers.judge.contender import Contender, ContenderFault, Mode
from workers.judge.inputs import InputSource
from workers.judge.physics import Peaks, versions
from workers.judge.processes import ForkServer, ForkServerDied
from workers.judge.trial import Trial, Wrong, failure_of
from workers.judge.verdict import Report, Stopped

SCREEN_SEEDS, VERIFY_SEEDS = 2, 3
INTERPRETED_CALL_S = 60.0
"""Longest call under Triton's interpreter, which runs a kernel thousands of times slower than a device."""

Outcome = tuple[VerdictWord, Gate, str, Failure | None]


class Referee:
    """Judges jobs one after another. Close it to end every process under it."""

    def __init__(self, cache: Path, cores: int) -> None:
        self.cache = cache
        self.cores = cores
        cache.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._scratch = tempfile.TemporaryDirectory(prefix="warpsmith-judge-")
        self.server = ForkServer(cores, Path(self._scratch.name))
        self.server.start()
        self.peaks = Peaks(cache, cores)
        self.warm = WarmOps()
        self._numbers = itertools.count()

    def judge(self, job: Job) -> Verdict:
        """The verdict on a job. Raises OSError only where the judge's own files cannot be written (a full disk)."""
        for last in (False, True):
            report = Report(job)
            try:
                outcome = self._judge(job, report)
                break
            except ForkServerDied as death:
                self.warm.close()
                self.server.start()
                outcome = "ambiguous", "screen", f"the judge's processes were killed twice: {death}", None
            except ContenderFault as fault:
                self.warm.close()
                if last or not fault.external:
                    outcome = _ended(fault)
                    break
        word, gate, reason, failure_found = outcome
        return report.verdict(word, gate, reason, failure_found, self.peaks.document(), versions())

    def end_idle(self) -> None:
        """End what was kept warm for too long; call it while waiting for jobs."""
        self.warm.end_idle()

    def close(self) -> None:
        """End every process and remove the scratch directory."""
        self.warm.close()
        self.server.close()
        self._scratch.cleanup()

    def _judge(self, job: Job, report: Report) -> Outcome:
        try:
            prepared = prepare(job, report, self.cache)
            with report.gate("memory"):
                workloads = footprint.select(job, prepared)
                allowed = footprint.check_memory(job, workloads)
            runners = self.warm.of(job["op"], lambda: self._start_op(job, allowed))
            trials = _Seeds(job, self._make(job, allowed))
            try:
                with report.gate("reference"):
                    self._learn(workloads, runners, trials, report)
                with self._candidate(job, prepared, report, allowed) as candidate:
                    return self._contest(job, report, prepared, workloads, runners, candidate, trials)
            finally:
                runners.unbind()
        except Stopped as stopped:
            return stopped.verdict, stopped.gate, str(stopped), stopped.failure

    def _learn(self, workloads: list[ResolvedWorkload], runners: OpRunners, seeds: _Seeds, report: Report) -> None:
        for workload in workloads:
            try:
                runners.learn(workload, lambda workload=workload: seeds.source(workload))  # type: ignore[misc]
            except ReferenceFault as fault:
                message = f"reference: {fault} (workload {fault.workload})"
                failure: Failure = {
                    "kind": fault.kind,
                    "message": message,
                    "field": "reference",
                    "workload": fault.workload,
                }
                failure |= {"found": fault.details.get("found"), "expected": fault.details.get("expected")}
                if fault.details.get("log"):
                    failure["log"] = str(fault.details["log"])
                raise Stopped("rejected", "reference", message, failure) from fault
            report.workloads.append(_untimed(workload, runners))

    def _contest(
        self,
        job: Job,
        report: Report,
        prepared: Prepared | None,
        workloads: list[ResolvedWorkload],
        runners: OpRunners,
        candidate: Contender | None,
        seeds: _Seeds,
    ) -> Outcome:
        bench = [workload for workload in workloads if workload["role"] == "bench"]
        interpreted = prepared is not None and prepared.interpreted
        if candidate is not None:
            with report.gate("screen"):
                self._check_all(
                    workloads if interpreted else bench, SCREEN_SEEDS, "screen", job, runners, candidate, seeds, report
                )
            if job["level"] == "verify":
                with report.gate("verify"):
                    self._check_all(workloads, VERIFY_SEEDS, "verify", job, runners, candidate, seeds, report)
        if not job["target"].startswith("cpu"):
            raise Stopped("ambiguous", "time", _no_device(job, prepared))
        with report.gate("time"):
            scored = self._time(job, report, bench, runners, candidate, seeds)
        if candidate is None:
            return "accepted", "time", "the reference is sound and the baselines are measured", None
        report.score, interval = timing.score(scored, seeds.number())
        report.score_ci95 = list(interval)
        checked = "every workload" if job["level"] == "verify" else "the bench workloads"
        reason = f"right on {checked}; {report.score:.3g} times as fast as the fastest baseline ({interval[0]:.3g} to {interval[1]:.3g})"
        return "accepted", "time", reason, None

    def _check_all(
        self,
        workloads: list[ResolvedWorkload],
        count: int,
        gate: Gate,
        job: Job,
        runners: OpRunners,
        candidate: Contender,
        seeds: _Seeds,
        report: Report,
    ) -> None:
        for workload in workloads:
            with _fails(gate, workload):
                candidate.bind(*_specs(workload), slots_for("candidate", workload))
                for _ in range(count):
                    trial = Trial(workload, runners, candidate, _call_s(job), seeds.source(workload), seeds.rng)
                    try:
                        trial.check_candidate()
                    finally:
                        _entry(report, workload)["error"]["candidate"] = trial.candidate_l2

    def _time(
        self,
        job: Job,
        report: Report,
        bench: list[ResolvedWorkload],
        runners: OpRunners,
        candidate: Contender | None,
        seeds: _Seeds,
    ) -> list[tuple[list[float], list[float]]]:
        plan = timing.full_plan if job["level"] == "verify" else timing.short_plan
        scored = []
        for workload in bench:
            with self._timing_lock(), _fails("time", workload):
                self.peaks.measure_for(workload, lambda source: self._start_probe(source, job))
                modes = self._available(job, workload, runners, seeds, report)
                if job["level"] == "screen":
                    modes = runners.to_beat(workload, modes)
                if candidate is not None:
                    candidate.bind(*_specs(workload), slots_for("candidate", workload))
                trial = Trial(workload, runners, candidate, job["limits"]["call_s"], seeds.source(workload), seeds.rng)
                samples = trial.time(modes, plan(job["limits"]["time_s"]))
            self._enter(_entry(report, workload), workload, samples, modes, seeds.number())
            if job["level"] != "screen":
                runners.fastest[workload_key(workload)] = timing.fastest(samples, modes)
            for mode, misses in trial.baseline_misses.items():
                report.notes.append(
                    f"baseline {mode} was outside the tolerance in {misses} checked timed calls of {workload['id']}"
                )
            if candidate is not None:
                scored.append((samples[timing.fastest(samples, modes)], samples["candidate"]))
        return scored

    def _available(
        self, job: Job, workload: ResolvedWorkload, runners: OpRunners, seeds: _Seeds, report: Report
    ) -> list[Mode]:
        """The baselines that run on a workload, compiled. Eager always does: the reference gate ran it."""
        modes: list[Mode] = []
        values = seeds.source(workload).draw()
        for mode in baseline_modes(job["op"]):
            key = (mode, workload_key(workload))
            if key not in runners.unavailable:
                try:
                    runners.run(mode, workload, values)
                    modes.append(mode)
                except ContenderFault as fault:
                    if fault.external or mode == "eager":
                        raise
                    runners.drop(mode)
                    runners.unavailable[key] = f"{fault.kind}: {str(fault).splitlines()[0][:300]}"
            if key in runners.unavailable:
                report.notes.append(f"baseline {mode} does not run on {workload['id']} ({runners.unavailable[key]})")
        return modes

    def _enter(
        self, entry: WorkloadVerdict, workload: ResolvedWorkload, samples: timing.Samples, modes: list[Mode], seed: int
    ) -> None:
        entry["samples"] = {name: [round(value, 3) for value in values] for name, values in samples.items()}
        entry["time_us"] = {name: float(np.median(values)) for name, values in samples.items()}
        if "candidate" in samples:
            for mode in modes:
                ratio, interval = timing.ratio_with_interval(samples[mode], samples["candidate"], seed)
                entry["speedup"][mode] = ratio
                entry["ci95"][mode] = list(interval)
        entry["limit_us"], entry["limit_by"] = self.peaks.limit(workload)
        entry["limit_fraction"] = entry["limit_us"] / entry["time_us"].get(
            "candidate", entry["time_us"].get("eager", float("nan"))
        )

    @contextmanager
    def _timing_lock(self) -> Iterator[None]:
        """Hold this host's clock: one judge times at a time."""
        with open(self.cache / "timing.lock", "w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield

    @contextmanager
    def _candidate(
        self, job: Job, prepared: Prepared | None, report: Report, allowed: int
    ) -> Iterator[Contender | None]:
        if prepared is None or job["candidate"] is None:
            yield None
            return
        with report.gate("screen"), _fails("screen", None):
            contender = self._start("candidate", job["candidate"]["source"], job, prepared.environment, allowed)
        try:
            yield contender
        finally:
            contender.close()

    def _start_op(self, job: Job, allowed: int) -> OpRunners:
        op = job["op"]

        def start(mode: Mode) -> Contender:
            environment = {}
            if mode in ("compile", "max_autotune"):
                directory = compiler_cache.directory_for(
                    op["reference"],
                    self.cache / "inductor",
                    lambda source, variables: self._start("compile", source, job, variables, allowed),
                )
                environment = compiler_cache.variables(directory)
            return self._start(mode, op["reference"], job, environment, allowed)

        return OpRunners(start, job["limits"]["call_s"])

    def _start_probe(self, source: str, job: Job) -> Contender:
        """A runner with a kernel of ours, built and started as a candidate's would be."""
        directory = kernel_cache(self.cache, source)
        limits = languages.CompileLimits(seconds=job["limits"]["compile_s"])
        arch = job["target"].partition(":")[2]
        languages.prepare(source, "cpp", target_arch=arch, cache_dir=directory, limits=limits, workloads=[])
        environment = {CACHE_VARIABLE: str(directory)}
        return self._start("candidate", source, job, environment, footprint.LEAST_FOR_RUNNERS)

    def _start(self, mode: Mode, source: str, job: Job, environment: dict[str, str], allowed: int) -> Contender:
        return Contender(
            self.server,
            name=mode,
            mode=mode,
            source=source,
            math=job["op"]["math"],
            directory=Path(self._scratch.name) / f"{mode}-{next(self._numbers)}",
            environment=environment,
            memory_bytes=allowed,
            cores=self.cores,
        )

    def _make(self, job: Job, allowed: int) -> Any:
        """Runs a spec's own input generator in a runner of its own."""

        def make(source: str, spec: TensorSpec, seed: int) -> torch.Tensor:
            contender = self._start("generate", source, job, {}, allowed)
            try:
                contender.bind([], [spec], 1)
                contender.command({"command": "generate", "seed": seed}, job["limits"]["call_s"])
                return contender.slots[0].tensor(0).clone()
            except ContenderFault as fault:
                if fault.external:
                    raise
                raise ReferenceFault(
                    fault.kind, f"the generator of input {spec.name}: {fault}", "", **fault.details
                ) from fault
            finally:
                contender.close()

        return make


class _Seeds:
    """Secret randomness of one job. Only the tests fix it, through the job's `seed`."""

    def __init__(self, job: Job, make: Any) -> None:
        self.rng = random.Random(job.get("seed", secrets.randbits(128)))  # noqa: S311 - seeded from the system's generator
        self._make = make

    def number(self) -> int:
        return self.rng.getrandbits(62)

    def source(self, workload: ResolvedWorkload) -> InputSource:
        return InputSource(workload["inputs"], self.number(), self._make)


@contextmanager
def _fails(gate: Gate, workload: ResolvedWorkload | None) -> Iterator[None]:
    """Turn a candidate's fault inside into the end of the job at this gate."""
    place = workload["id"] if workload else "(loading)"
    try:
        yield
    except Wrong as wrong:
        raise Stopped("rejected", gate, str(wrong), wrong.failure) from wrong
    except ContenderFault as fault:
        if fault.external or fault.mode != "candidate":
            raise
        failure = failure_of(fault, place)
        raise Stopped("rejected", gate, failure["message"], failure) from fault


def _ended(fault: ContenderFault) -> Outcome:
    """The outcome where a runner failed outside of any gate that could say more, or was killed from outside twice."""
    if fault.mode == "candidate":
        return "rejected", "screen", str(fault), {"kind": fault.kind, "message": str(fault)}
    return (
        "rejected",
        "reference",
        f"reference: {fault}",
        {"kind": fault.kind, "message": str(fault), "field": "reference"},
    )


def _specs(workload: ResolvedWorkload) -> tuple[list[TensorSpec], list[TensorSpec]]:
    return input_specs(workload), result_specs(workload)


def _call_s(job: Job) -> float:
    return job["limits"]["call_s"] if job["target"].startswith("cpu") else INTERPRETED_CALL_S


def _entry(report: Report, workload: ResolvedWorkload) -> WorkloadVerdict:
    return next(entry for entry in report.workloads if entry["id"] == workload["id"])


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


def cores_available() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0))
