"""The referee: takes jobs through the gates. It holds the seeds, the expected values, the clock and the verdict, and
runs no code but ours.

Gates, in order; the first that fails ends the job: gate, compile, sandbox, memory, reference, admission (without a
candidate), screen, verify, time, physics. A fork server or a runner that is killed from outside costs one repetition of
the job, not a verdict.
"""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path

import torch

from warpsmith.kernels_db.job.documents import FREE_PYTHON_SANDBOX, Failure, Job, Verdict, tier_of
from warpsmith.workers.judge.clock.physics import Peaks
from warpsmith.workers.judge.gates import footprint
from warpsmith.workers.judge.gates.candidates import Prepared, prepare
from warpsmith.workers.judge.gates.gates import Outcome, Passage
from warpsmith.workers.judge.gates.job_run import Case
from warpsmith.workers.judge.gates.profiling import profile
from warpsmith.workers.judge.gates.runner_factory import PROBE, Starter
from warpsmith.workers.judge.gates.verdict import Report, Stopped
from warpsmith.workers.judge.machine import cache_pruning, host
from warpsmith.workers.judge.machine.device import Cpu, Device, Gpu, open_gpu
from warpsmith.workers.judge.nsight import profiler
from warpsmith.workers.judge.reference.baselines import ReferenceFault, WarmOps
from warpsmith.workers.judge.runner.faults import ContenderFault
from warpsmith.workers.judge.runner.fork_server_client import ForkServer, ForkServerDied
from warpsmith.workers.judge.runner.runner_handle import Contender
from warpsmith.workers.judge.sandbox.sandbox import Confinement, NotConfined
from warpsmith.workers.judge.values.inputs import BadDistribution

_COMPILERS = ("torch.fx.experimental.symbolic_shapes", "torch._dynamo", "torch._inductor.config")
"""Of what torch.compile imports at its first call: once for all compiled baselines, instead of in each. Inductor's
`compile_fx`, which takes as long again, starts CUDA's own thread, and a fork beside a thread copies locks that nobody
holds.
"""

FALLEN = ("crash", "timeout", "memory", "protocol", "raises")
"""Kinds of failure after which a GPU is proven before the next job."""


@dataclass(frozen=True)
class Ready:
    """A job that has passed the gates before the device, or was stopped by one of them."""

    job: Job
    report: Report
    prepared: Prepared | None
    stopped: Stopped | None


class _Bench:
    """All that stands for one device: fork server, peaks and the references kept warm."""

    def __init__(self, device: Device, cache: Path, scratch: Path, server: ForkServer, cores: int) -> None:
        """`scratch`: where `server` runs."""
        self.device = device
        self.scratch = scratch
        self.server = server
        # A GPU host's runners never interpret, so Triton, which reads that choice when it is imported, can be there
        # before the fork, and with it what compiled baselines import.
        if isinstance(device, Gpu):
            built = cache / "triton"
            built.mkdir(mode=0o700, exist_ok=True)
            server.preload(("cuda.core", *_COMPILERS), (built, device.capability))
        else:
            server.preload()
        self.starter = Starter(server, scratch, cache, cores, device)
        self.peaks = Peaks(cache, device)
        self.warm = WarmOps()

    def close(self) -> None:
        """End every process."""
        self.warm.close()
        self.server.close()


class Referee:
    """Judges jobs one after another. Close it to end every process under it."""

    def __init__(self, cache: Path, scratch: Path, cores: int, server: ForkServer) -> None:
        """`cache` keeps binaries and peaks; `scratch` is empty, and whoever made it removes it. `server` runs there,
        and has not been told what to preload: it becomes the GPU's, where there is one, else the CPU's.

        Raises OSError where the cache cannot be written.
        """
        cache.mkdir(mode=0o700, parents=True, exist_ok=True)
        cache_pruning.prune(cache)
        self._cache = cache
        self._cores = cores
        self._scratch = scratch
        self._gpu = open_gpu()
        first = self._gpu or Cpu(cores)
        self._benches = {first.kind: _Bench(first, cache, scratch, server, cores)}
        self.must_restart = False
        """The device can no longer be used by this process, which must be replaced."""

    def prepare(self, job: Job) -> Ready:
        """Take a job through the gates that need no device: gate and compile. May be called from any thread, for
        several jobs at once.
        """
        report = Report(job)
        interpreted = self._device(job["target"]).kind == "cpu"
        try:
            return Ready(job, report, prepare(job, report, self._cache, interpreted=interpreted), None)
        except Stopped as stopped:
            return Ready(job, report, None, stopped)

    def judge(self, ready: Ready) -> Verdict:
        """The verdict on a prepared job. For one thread alone."""
        outcome: Outcome = "ambiguous", "screen", "", None
        job, report = ready.job, ready.report
        bench = self._bench(self._device(job["target"]))
        for last in (False, True):
            try:
                outcome = self._judge(ready, bench)
                break
            except ForkServerDied as death:
                bench.warm.close()
                bench.server.start()
                outcome = "ambiguous", "screen", f"the judge's own processes were killed twice ({death})", None
            except ContenderFault as fault:
                bench.warm.close()
                outcome = _ended(fault)
                if last or not fault.external:
                    break
            except NotConfined as error:
                bench.warm.close()
                reason = f"a runner could not be confined: {error}"
                outcome = "ambiguous", "sandbox", reason, {"kind": "sandbox", "message": reason}
                break
            except (OSError, torch.OutOfMemoryError) as error:  # the latter on a GPU that others fill
                bench.warm.close()
                reason = f"the judge's host refuses what it needs: {error}"
                outcome = "ambiguous", "memory", reason, {"kind": "host", "message": reason}
                break
            ready = self.prepare(job)
            report = ready.report
        word, gate, reason, failure = self._proven(outcome, bench)
        return report.verdict(word, gate, reason, failure, bench.peaks.document(), bench.device.versions())

    def end_idle(self) -> None:
        """End what was kept warm for too long; call it while waiting for jobs."""
        for bench in self._benches.values():
            bench.warm.end_idle()

    def close(self) -> None:
        """End every process."""
        for bench in self._benches.values():
            bench.close()

    def _device(self, target: str) -> Device:
        """Where a job is taken: the GPU if it is what the target names, else the CPU."""
        if self._gpu is not None and target == f"cuda:{self._gpu.arch}":
            return self._gpu
        return Cpu(self._cores)

    def _bench(self, device: Device) -> _Bench:
        if device.kind not in self._benches:
            scratch = self._scratch / device.kind
            scratch.mkdir(mode=0o700)
            server = ForkServer(self._cores, scratch)
            self._benches[device.kind] = _Bench(device, self._cache, scratch, server, self._cores)
        return self._benches[device.kind]

    def _proven(self, outcome: Outcome, bench: _Bench) -> Outcome:
        """The outcome, after making sure that a contender that fell has not taken the device with it."""
        failure = outcome[3]
        if bench.device.kind == "cpu" or failure is None or failure["kind"] not in FALLEN:
            return outcome
        bench.warm.drop_broken()
        fault = bench.device.fault()
        if fault is None:
            return outcome
        self.must_restart = True
        word, gate, reason, _ = outcome
        failure = failure | {"cause": "device"}
        return word, gate, f"{reason}; the device fell over with it ({fault}): the judge starts anew", failure

    def _judge(self, ready: Ready, bench: _Bench) -> Outcome:
        job, report, prepared, starter = ready.job, ready.report, ready.prepared, bench.starter
        try:
            if ready.stopped is not None:
                raise ready.stopped
            _demand(job, report, starter.confinement(job))
            if job["candidate"] is not None and tier_of(language := job["candidate"]["language"]) == "sandbox":
                _demand_for_free_python(starter.candidate_confinement(language))
            with report.gate("memory"):
                workloads = footprint.select(job, bench.device)
                bench.device.release()  # the tensors of the job before are gone by now
                if footprint.is_crowded(job, workloads, bench.device):
                    bench.warm.end_others(job["op"])
                allowed = footprint.check_memory(job, workloads, bench.device)
            # On a GPU everything runs on the clock's own device, so its lease is held for all but starting processes;
            # on a CPU only while the clock runs.
            on_gpu = bench.device.kind == "cuda"

            def lease() -> AbstractContextManager[None]:
                return self._exclusive(report, bench)

            runners = bench.warm.of(job["op"], lambda: starter.op(job, allowed))
            try:
                case = Case(
                    job=job,
                    report=report,
                    prepared=prepared,
                    workloads=workloads,
                    runners=runners,
                    peaks=bench.peaks,
                    make=lambda source, spec, seed: starter.generate(job, allowed, source, spec, seed),
                    start_probe=lambda source, language: starter.probe(source, language, job),
                    exclusive=nullcontext if on_gpu else lease,
                    on_device=lease if on_gpu else nullcontext,
                    device=bench.device.torch,
                )
                passage = Passage(case)
                if prepared is None or job["candidate"] is None:
                    passage.reference()
                    return passage.contest(None)
                source, language = job["candidate"]["source"], job["candidate"]["language"]
                environment = prepared.environment

                def start() -> Contender:
                    if tier_of(language) == "sandbox":  # its file may do anything as it is loaded
                        report.sandbox = starter.candidate_confinement(language).document()
                    started = starter.start("candidate", source, job, environment=environment, allowed=allowed)
                    return _noted(report, started)

                if job["level"] == "profile":
                    # Under ncu a process is held less than a runner, and free Python is held by nothing else.
                    probed = on_gpu and tier_of(language) == "gated"
                    ncu = profiler.here(bench.scratch, self._cores, bench.server.ready()) if probed else None
                    return profile(case, start, None if ncu is None else ncu.measure_of(job, environment))
                passage.reference()
                return passage.contest(start)
            finally:
                runners.unbind()
        except Stopped as stopped:
            return stopped.verdict, stopped.gate, str(stopped), stopped.failure
        except ReferenceFault as fault:  # the spec's own generator, after the reference gate
            return "rejected", "reference", f"reference: {fault}", {"kind": fault.kind, "message": str(fault)}
        except BadDistribution as bad:
            failure = {"kind": "distribution", "message": str(bad), "field": bad.field, "found": bad.dist}
            return "rejected", "reference", str(bad), failure  # type: ignore[return-value]  # the literal is a Failure

    @contextmanager
    def _exclusive(self, report: Report, bench: _Bench) -> Iterator[None]:
        """Hold the device's clock: one judge times at a time. Notes what other processes took of a CPU meanwhile."""
        with open(self._cache / f"timing-{bench.device.lease}.lock", "w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            before = host.usage()
            try:
                with report.gate("exclusive"):
                    yield
            finally:
                if bench.device.kind == "cpu":
                    report.others.append(host.share_of_others(before, host.usage()))


def _demand(job: Job, report: Report, least: Confinement) -> None:
    """Refuse a job that demands more than its runners will reach. Raises Stopped."""
    minimum = job["limits"].get("sandbox")
    if minimum is not None and not least.reaches(minimum):
        reason = f"limits.sandbox: found {least.level} on this host ({', '.join(least.layers)}), expected {minimum}"
        failure: Failure = {"kind": "sandbox", "message": reason, "field": "limits.sandbox"}
        failure |= {"found": least.level, "expected": minimum}
        raise Stopped("ambiguous", "sandbox", reason, failure)
    if job["candidate"] is None:
        report.sandbox = least.document()


def _demand_for_free_python(reached: Confinement) -> None:
    """Refuse a candidate that no gate has read where its runner would not be held as well as can be. Raises Stopped."""
    if reached.reaches(FREE_PYTHON_SANDBOX):
        return
    found = f"python on a host that confines its runner at level {reached.level} ({', '.join(reached.layers)})"
    expected = f"a host that reaches {FREE_PYTHON_SANDBOX}: free Python passes no gate, the sandbox alone holds it"
    reason = f"candidate.language: found {found}, expected {expected}"
    failure: Failure = {"kind": "sandbox", "message": reason, "field": "candidate.language"}
    raise Stopped("ambiguous", "sandbox", reason, failure | {"found": reached.level, "expected": FREE_PYTHON_SANDBOX})


def _noted(report: Report, candidate: Contender) -> Contender:
    """The candidate, after writing down what stands around it."""
    report.sandbox = candidate.confinement.document()
    return candidate


def _ended(fault: ContenderFault) -> Outcome:
    """The outcome where a runner failed outside of any gate that could say more, or was killed from outside twice."""
    if fault.contender == "candidate":
        failure: Failure = {"kind": fault.kind, "message": str(fault)}
        if fault.external:
            failure["cause"] = "died"
        return "rejected", "screen", str(fault), failure
    if fault.contender == PROBE:
        return "ambiguous", "time", f"the memory probe failed: {fault}", None
    reason = f"reference: {fault}"
    return "rejected", "reference", reason, {"kind": fault.kind, "message": reason, "field": "reference"}
