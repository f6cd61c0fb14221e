"""The referee: takes jobs through the gates.

It holds the seeds, the expected values, the clock and the verdict, and runs no code but ours.

Gates, in order; the first that fails ends the job: gate, compile, sandbox, memory, reference, admission (without a
candidate), screen, verify, time, physics. A fork server or a runner that is killed from outside costs one repetition of
the job, not a verdict.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch

from warpsmith.kernels_db.job.documents import Failure, Job, Progress, Verdict
from warpsmith.workers.judge.gates.bench import Bench
from warpsmith.workers.judge.gates.candidates import prepare
from warpsmith.workers.judge.gates.configurations import Prepared
from warpsmith.workers.judge.gates.gates import Outcome, pass_gates
from warpsmith.workers.judge.gates.job_run import JobRun
from warpsmith.workers.judge.gates.profiling import profile
from warpsmith.workers.judge.gates.runner_factory import PROBE
from warpsmith.workers.judge.gates.verdict import Report, Stopped, Unfit
from warpsmith.workers.judge.machine import cache_pruning
from warpsmith.workers.judge.machine.clock_lease import ClockLease, Share
from warpsmith.workers.judge.machine.device import Cpu, Device, open_gpu
from warpsmith.workers.judge.machine.host import find_full_disk, is_out_of_room
from warpsmith.workers.judge.preloaded.client import ForkServerDied
from warpsmith.workers.judge.reference.learning import ReferenceFault
from warpsmith.workers.judge.runner.faults import RunnerFault
from warpsmith.workers.judge.runner.fork_server_client import ForkServer
from warpsmith.workers.judge.sandbox.sandbox import NotConfined
from warpsmith.workers.judge.values.inputs import BadDistribution

FULL = "No space left on device"
"""The system's words for it, in the output of a compiler."""

FALLEN = ("crash", "timeout", "memory", "protocol", "raises")
"""Kinds of failure after which a GPU is proven before the next job."""

COMPILED = "it compiles; nothing of it was run"

OTHERS_SHARE = 0.1
"""Of a GPU's memory: who runs out of it while other programs hold more is not to blame."""


@dataclass(frozen=True)
class Ready:
    """A job that has passed the gates before the device, or was stopped by one of them."""

    job: Job
    report: Report
    prepared: Prepared | None
    stopped: Stopped | Unfit | None


class Referee:
    """Judges jobs one after another. Close it to end every process under it."""

    def __init__(self, cache: Path, scratch: Path, cores: int, server: ForkServer) -> None:
        """Prepare to judge with an idle fork server.

        `cache` keeps binaries and peaks; `scratch` is empty, and its maker removes it. `server` runs there, and has not
        been told what to preload: it becomes the GPU's, where there is one, else the CPU's.

        Raises OSError where the cache cannot be written.
        """
        cache.mkdir(mode=0o700, parents=True, exist_ok=True)
        cache_pruning.prune(cache)
        self._cache = cache
        self._cores = cores
        self._scratch = scratch
        self._gpu = open_gpu()
        first = self._gpu or Cpu(cores)
        self._benches = {first.kind: Bench(first, cache, scratch, server, cores)}
        self.tell: Callable[[str, Progress], None] | None = None
        """Gets a job's id and where it is, from the thread that takes it there."""
        self.must_restart = False
        """The device can no longer be used by this process, which must be replaced."""

    def prepare(self, job: Job) -> Ready:
        """Take a job through the gates that need no device: gate and compile.

        May be called from any thread, for several jobs at once.
        """
        report = Report(job, None if self.tell is None else partial(self.tell, job["id"]))
        interpreted = self._device(job["target"]).kind == "cpu"
        try:
            with self._beside(job):
                return Ready(job, report, prepare(job, report, self._cache, interpreted=interpreted), None)
        except Stopped as stopped:
            return Ready(job, report, None, stopped)
        except OSError as error:
            if not is_out_of_room(error):
                raise
            return Ready(job, report, None, Unfit("disk", self._place(error)))

    def judge(self, ready: Ready) -> Verdict:
        """Return the verdict on a prepared job. Only one thread may call it.

        Raises Unfit where this host cannot judge it: no verdict is made of a disk that is full, or of a device that no
        process of this host can use any more.
        """
        outcome: Outcome = "ambiguous", "screen", "", None
        job, report = ready.job, ready.report
        bench = self._bench(self._device(job["target"]))
        if (compiled := self.compiled(ready)) is not None:
            return compiled
        for last in (False, True):
            again = False
            try:
                outcome = self._judge(ready, bench)
            except ForkServerDied as death:
                bench.warm.close()
                bench.server.start()
                outcome = "ambiguous", "screen", f"the judge's own processes were killed twice ({death})", None
                again = True
            except RunnerFault as fault:
                bench.warm.close()
                outcome = _ended(fault)
                again = fault.external
            except NotConfined as error:
                bench.warm.close()
                reason = f"a runner could not be confined: {error}"
                outcome = "ambiguous", "sandbox", reason, {"kind": "sandbox", "message": reason}
            except (OSError, torch.OutOfMemoryError) as error:  # the latter on a GPU that others fill
                bench.warm.close()
                if is_out_of_room(error):
                    raise Unfit("disk", self._place(error)) from error
                reason = f"the judge's host refuses what it needs: {error}"
                outcome = "ambiguous", "memory", reason, {"kind": "host", "message": reason}
            except RuntimeError:  # torch's word for an error of the device, in the referee's own work
                self._check_device(bench)
                raise
            outcome, crowded = _without_neighbours(outcome, bench)
            if last or not (again or crowded):
                break
            ready = self.prepare(job)
            report = ready.report
        self._check_room(outcome, job)
        word, gate, reason, failure = self._proven(outcome, bench)
        return report.verdict(word, gate, reason, failure, bench.peaks.document(), bench.device.versions())

    def compiled(self, ready: Ready) -> Verdict | None:
        """Return the verdict of a job at level compile that needs no device; None where it needs the judging thread.

        From any thread. A Triton candidate whose device is not here goes on to the interpreter, and anything that
        stopped before it compiled is proven by `judge`.
        """
        device = self._device(ready.job["target"])
        bench = self._benches.get(device.kind)
        if ready.job["level"] != "compile" or bench is None or isinstance(ready.stopped, Unfit):
            return None
        if ready.stopped is not None:
            if ready.stopped.failure is not None and FULL in str(ready.stopped.failure.get("log", "")):
                return None
            outcome: Outcome = (ready.stopped.verdict, ready.stopped.gate, str(ready.stopped), ready.stopped.failure)
        elif ready.prepared is not None and ready.prepared.interpreted:
            return None
        else:
            outcome = ("ambiguous", "compile", COMPILED, None)
        return ready.report.verdict(*outcome, bench.peaks.document(), bench.device.versions())

    def end_idle(self) -> None:
        """End what was kept warm for too long; call it while waiting for jobs."""
        for bench in self._benches.values():
            bench.warm.end_idle()

    def close(self) -> None:
        """End every process."""
        for bench in self._benches.values():
            bench.close()

    def _beside(self, job: Job) -> AbstractContextManager[Share | None]:
        """Keep other judges of this host from timing the processor while a job that only compiles is worked on.

        They hold the clock for a workload at a time, which it waits for. For any other job this does nothing: it is in
        the judge that times, or of a GPU, whose clock no compiler disturbs.
        """
        device = self._device(job["target"])
        if job["level"] != "compile" or device.kind != "cpu":
            return nullcontext()
        return ClockLease(self._cache, device.lease).beside()

    def _device(self, target: str) -> Device:
        """Return the device of a job: the GPU if the target names it, else the CPU."""
        if self._gpu is not None and target == f"cuda:{self._gpu.arch}":
            return self._gpu
        return Cpu(self._cores)

    def _bench(self, device: Device) -> Bench:
        if device.kind not in self._benches:
            scratch = self._scratch / device.kind
            scratch.mkdir(mode=0o700)
            server = ForkServer(self._cores, scratch)
            self._benches[device.kind] = Bench(device, self._cache, scratch, server, self._cores)
        return self._benches[device.kind]

    def _proven(self, outcome: Outcome, bench: Bench) -> Outcome:
        """Return the outcome, after a check of the device where a runner fell.

        Where the device fell with the runner, the judge must restart, and the outcome says so.
        """
        failure = outcome[3]
        if bench.device.kind == "cpu" or failure is None or failure["kind"] not in FALLEN:
            return outcome
        bench.warm.drop_broken()
        fault = bench.device.fault()
        if fault is None:
            return outcome
        self.must_restart = True
        self._check_device(bench)
        word, gate, reason, _ = outcome
        failure = failure | {"cause": "device"}
        return word, gate, f"{reason}; the device fell over with it ({fault}): the judge starts anew", failure

    def _check_device(self, bench: Bench) -> None:
        """Raise Unfit where the device is of no use to a fresh process either."""
        if bench.device.kind == "cuda" and (lost := bench.device.lost()) is not None:
            self.must_restart = True
            raise Unfit("device", f"{bench.device.name} is lost: {lost}")

    def _check_room(self, outcome: Outcome, job: Job) -> None:
        """Raise Unfit where a disk without room may have brought the outcome about.

        A compiler that could not write says so, and so may a candidate: its own words do not count.
        """
        word, _, _, failure = outcome
        if word == "accepted":
            return
        if (full := find_full_disk((self._cache, self._scratch))) is not None:
            raise Unfit("disk", f"{full} has no room left")
        written = "" if failure is None else str(failure.get("log", ""))
        if FULL in written and FULL not in str(job["candidate"]):
            raise Unfit("disk", f"{FULL}, in {self._cache} or {self._scratch}")

    def _place(self, error: OSError) -> str:
        """Say which disk took no write: where a file was open already, the system's words name none."""
        if error.filename is not None:
            return str(error)
        if (full := find_full_disk((self._cache, self._scratch))) is not None:
            return f"{full} has no room left: {error}"
        return f"{error}, in {self._cache} or {self._scratch}"

    def _judge(self, ready: Ready, bench: Bench) -> Outcome:
        try:
            if ready.stopped is not None:
                raise ready.stopped
            with self._beside(ready.job) as share:
                job_run = JobRun(ready.job, ready.report, ready.prepared, bench, share)
                try:
                    job_run.open()
                    return profile(job_run) if ready.job["level"] == "profile" else pass_gates(job_run)
                finally:
                    job_run.close()
        except Stopped as stopped:
            return stopped.verdict, stopped.gate, str(stopped), stopped.failure
        except ReferenceFault as fault:  # the spec's own generator, after the reference gate
            return "rejected", "reference", f"reference: {fault}", {"kind": fault.kind, "message": str(fault)}
        except BadDistribution as bad:
            failure = {"kind": "distribution", "message": str(bad), "field": bad.field, "found": bad.dist}
            return "rejected", "reference", str(bad), failure  # type: ignore[return-value]  # the literal is a Failure


def _without_neighbours(outcome: Outcome, bench: Bench) -> tuple[Outcome, bool]:
    """Return the outcome, and whether it is worth one more try: what others hold of a GPU is no verdict on a candidate.

    Where a runner ran out of the GPU's memory, this judge's warm runners end. If they held some for other ops, the job
    is tried again; if other programs hold more than OTHERS_SHARE, nothing can be said of it.
    """
    _, gate, reason, failure = outcome
    if bench.device.kind == "cpu" or failure is None or failure["kind"] != "memory" or gate == "memory":
        return outcome, False
    crowded = len(bench.warm) > 1
    bench.warm.close()
    bench.device.release()
    free, ever = bench.device.free_bytes(), bench.device.all_bytes()
    if free >= (1 - OTHERS_SHARE) * ever:
        return outcome, crowded
    reason = f"{reason}; other programs hold {ever - free} bytes of the {ever} that an empty device has"
    return ("ambiguous", "memory", reason, {"kind": "host", "message": reason}), False


def _ended(fault: RunnerFault) -> Outcome:
    """Return the outcome of a runner that failed.

    It failed outside of any gate that could say more, or was killed from outside twice.
    """
    if fault.runner == "candidate":
        failure: Failure = {"kind": fault.kind, "message": str(fault)}
        if fault.external:
            failure["cause"] = "died"
        return "rejected", "screen", str(fault), failure
    if fault.runner == PROBE:
        return "ambiguous", "time", f"the memory probe failed: {fault}", None
    reason = f"reference: {fault}"
    return "rejected", "reference", reason, {"kind": fault.kind, "message": reason, "field": "reference"}
