"""The state that the gates of one job share.

The job and its report, the source of values, and which runner is bound to which workload.
"""

from __future__ import annotations

import random
import secrets
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from functools import partial

from warpsmith.kernels_db.job.documents import (
    FREE_PYTHON_SANDBOX,
    Failure,
    Gate,
    Job,
    ResolvedWorkload,
    WorkloadVerdict,
    tier_of,
)
from warpsmith.kernels_db.job.memory import SHARE
from warpsmith.kernels_db.runtime.cutedsl_build import NOT_CARRIED
from warpsmith.kernels_db.runtime.errors import HostError
from warpsmith.workers.judge.gates import footprint
from warpsmith.workers.judge.gates.bench import Bench
from warpsmith.workers.judge.gates.configurations import Prepared, Variant
from warpsmith.workers.judge.gates.generators import Generators
from warpsmith.workers.judge.gates.verdict import Report, Stopped
from warpsmith.workers.judge.gates.workload_run import WorkloadRun
from warpsmith.workers.judge.gates.wrong import Wrong, failure_of
from warpsmith.workers.judge.languages import compile_service
from warpsmith.workers.judge.machine import host
from warpsmith.workers.judge.machine.clock_lease import Share
from warpsmith.workers.judge.reference import expert_packages
from warpsmith.workers.judge.reference.baselines import OpRunners
from warpsmith.workers.judge.runner.faults import RunnerFault
from warpsmith.workers.judge.runner.runner_handle import RunnerHandle
from warpsmith.workers.judge.sandbox.sandbox import Confinement
from warpsmith.workers.judge.values.families import Family
from warpsmith.workers.judge.values.inputs import InputSource, InputSources
from warpsmith.workers.judge.values.workload_specs import input_specs, result_specs, slots_for

CHECK_SLOTS = 3
"""Slots that checked calls rotate through: fresh pointers for each."""

MOST_STARTED = 4
"""Runners of a candidate's configurations that are started side by side on a GPU, at most."""

CONTEXT_BYTES = 1 << 30
"""A GPU's memory that a runner is taken to need beside its buffers: its context and what flushes the cache."""

INTERPRETED_CALL_S = 60.0
"""Longest call under Triton's interpreter, in seconds.

It runs a kernel thousands of times slower than a device.
"""

_UNKNOWN_TO_INTERPRETER = "not supported in interpreter mode"
"""What Triton's interpreter says of inline assembly, and `interpreter_gaps` of libdevice and of device properties."""

_UNLIKE_A_GPU = ("bfloat16", "float8")
"""Dtypes, by what their names hold, with which the interpreter computes otherwise than a GPU."""


class JobRun:
    """One job on its way through the gates of a bench. `open` it first, and close it."""

    def __init__(
        self, job: Job, report: Report, prepared: Prepared | None, bench: Bench, share: Share | None = None
    ) -> None:
        """`prepared`: of a candidate; None at baseline level. `share`: in the processor's clock, of a compilation."""
        self.job = job
        self.report = report
        self.prepared = prepared
        self.bench = bench
        self.device = bench.device.torch
        self.on_gpu = self.device.type == "cuda"
        self.workloads = job["workloads"]
        # Secret: drawn from the system for each job. Only tests fix it.
        self.rng = random.Random(job.get("seed", secrets.randbits(128)))  # noqa: S311 - seeded as said above
        self.unsuited: set[str] = set()
        self.start_probe = partial(bench.factory.probe, job=job)
        self._share = share
        self._allowed = 0  # bytes of this host's memory for each runner besides its buffers
        self._runners: OpRunners | None = None
        self._generators: Generators | None = None

    def open(self) -> None:
        """Pass the gates `sandbox` and `memory`, and take the reference's runners.

        Chooses the workloads. Raises Stopped, ForkServerDied.
        """
        job, bench, factory = self.job, self.bench, self.bench.factory
        _demand(job, self.report, factory.confinement(job))
        if job["candidate"] is not None and tier_of(language := job["candidate"]["language"]) == "sandbox":
            _demand_for_free_python(factory.candidate_confinement(language))
        with self.report.gate("memory"):
            self.workloads = footprint.select(job, bench.device)
            bench.device.release()  # the tensors of the job before are gone by now
            if footprint.is_crowded(job, self.workloads, bench.device):
                bench.warm.end_others(job["op"])
            self._allowed = footprint.check_memory(job, self.workloads, bench.device)
        if job["op"].get("experts"):
            self.report.experts = expert_packages.versions(job["op"])
        self._runners = bench.warm.find(job["op"]) or factory.op(job, self._allowed)
        bench.warm.keep(job["op"], self._runners)
        self._generators = Generators(partial(factory.generator, job, self._allowed), job["limits"]["call_s"])
        self.sources = InputSources(self.rng, self._generators.make, self.device)

    def close(self) -> None:
        """End the generators, and free the buffers of the reference's runners, which stay warm."""
        if self._generators is not None:
            self._generators.close()
        if self._runners is not None:
            self._runners.unbind()

    @property
    def runners(self) -> OpRunners:
        """The reference's runners."""
        assert self._runners is not None
        return self._runners

    @contextmanager
    def candidate(self) -> Iterator[RunnerHandle]:
        """Start the candidate's runner in gate `screen`, yield it, and close it at the end.

        On a GPU the start runs a few kernels of ours without the lease.

        Raises Stopped, ForkServerDied, NotConfined.
        """
        with self.report.gate("screen"), candidate_at_fault("screen", None, carried=self.carried):
            started = self._start_candidate()
        try:
            yield started
        finally:
            started.close()

    @contextmanager
    def variants(self, variants: Sequence[Variant]) -> Iterator[list[RunnerHandle | Stopped]]:
        """Start the runners of some configurations side by side, yield them or why there is none, and close them.

        Each configuration has a process of its own, which stands still until it is called. Starts run on a GPU as
        `candidate`'s does. Raises as that does.
        """
        with ExitStack() as open_ones:
            started: list[RunnerHandle | Stopped] = []
            with self.report.gate("time"):
                for variant in variants:
                    assert variant.prepared is not None
                    environment, allowed = variant.prepared.environment, self._allowed
                    runner = self.bench.factory.start(
                        "candidate", variant.source, self.job, environment=environment, allowed=allowed, wait=False
                    )
                    open_ones.callback(runner.close)
                    started.append(runner)
                for step in (RunnerHandle.begin_load, RunnerHandle.end_load, RunnerHandle.rest):
                    started = [one if isinstance(one, Stopped) else self._after(one, step) for one in started]
            yield started

    def _after(self, runner: RunnerHandle, step: Callable[[RunnerHandle], None]) -> RunnerHandle | Stopped:
        """Take one step of a configuration's start; return its runner, or why there is none."""
        try:
            with candidate_at_fault("screen", None, carried=self.carried):
                step(runner)
        except Stopped as stopped:
            runner.close()
            return stopped
        return runner

    def started_at_once(self) -> int:
        """Return how many configurations' runners may be started side by side.

        On a CPU one: it would be no sooner done, and takes the host's memory. On a GPU as many as there is room for
        beside the buffers, which leave a share of what is free.
        """
        if not self.on_gpu:
            return 1
        room = (1 - SHARE) * self.bench.device.free_bytes()
        return max(1, min(MOST_STARTED, int(room / CONTEXT_BYTES)))

    def choose(self, variant: Variant) -> None:
        """Go on with one configuration as the candidate."""
        assert self.job["candidate"] is not None
        self.job = {**self.job, "candidate": {**self.job["candidate"], "source": variant.source}}
        self.prepared = variant.prepared
        self.report.compile = variant.compiled

    def _start_candidate(self) -> RunnerHandle:
        """Start the candidate's runner and report what confines it."""
        assert self.job["candidate"] is not None
        assert self.prepared is not None
        source, language = self.job["candidate"]["source"], self.job["candidate"]["language"]
        if tier_of(language) == "sandbox":  # its file may do anything as it is loaded
            self.report.sandbox = self.bench.factory.candidate_confinement(language).document()
        started = self.bench.factory.start(
            "candidate", source, self.job, environment=self.prepared.environment, allowed=self._allowed
        )
        self.report.sandbox = started.confinement.document()
        return started

    @contextmanager
    def counting(self, candidate: RunnerHandle, gate: Gate) -> Iterator[None]:
        """Count the candidate's calls inside towards a gate."""
        before = candidate.calls
        try:
            yield
        finally:
            self.report.calls[gate] = self.report.calls.get(gate, 0) + candidate.calls - before

    def exclusive(self) -> AbstractContextManager[None]:
        """Hold the clock.

        On a GPU everything runs on the clock's own device, so `on_device` holds it for all but starting processes. Such
        a start runs on the device without the lease, for a moment (`runner_process.Runner.load`). On a CPU it is held
        only while the clock runs.
        """
        return nullcontext() if self.on_gpu else self._lease()

    def on_device(self) -> AbstractContextManager[None]:
        """Hold the device for whatever else runs on it, where that would disturb the clock."""
        return self._lease() if self.on_gpu else nullcontext()

    @contextmanager
    def _lease(self) -> Iterator[None]:
        """Hold the device's lease. Notes what other processes took of a CPU meanwhile."""
        if not self.on_gpu:
            compile_service.settle()
        with self.bench.lease():
            before = host.usage()
            try:
                with self.report.gate("exclusive"):
                    yield
            finally:
                if not self.on_gpu:
                    self.report.others.append(host.share_of_others(before, host.usage()))

    @property
    def carried(self) -> bool:
        """Whether the candidate's build came with the job."""
        candidate = self.job["candidate"]
        return candidate is not None and "build" in candidate

    @property
    def interpreted(self) -> bool:
        """Whether the candidate runs under Triton's interpreter, because there is no GPU."""
        return self.prepared is not None and self.prepared.interpreted

    def timed_workloads(self) -> list[ResolvedWorkload]:
        """Return the workloads that are timed."""
        return [workload for workload in self.workloads if workload["role"] == "bench"]

    def entry(self, workload: ResolvedWorkload) -> WorkloadVerdict:
        """Return the verdict's entry of a workload."""
        return next(entry for entry in self.report.workloads if entry["id"] == workload["id"])

    def note(self, text: str) -> None:
        """Have the verdict say something, once."""
        if text not in self.report.notes:
            self.report.notes.append(text)

    def note_error(self, workload: ResolvedWorkload, calls: WorkloadRun) -> None:
        """Keep the candidate's largest errors on a workload; the absolute one is infinite where it is not known."""
        errors = self.entry(workload)["error"]
        if calls.candidate_l2 is not None:
            errors["candidate"] = max(calls.candidate_l2, errors["candidate"] or 0.0)
        if calls.candidate_absolute is not None:
            errors["absolute"] = max(calls.candidate_absolute, errors.get("absolute") or 0.0)

    def number(self) -> int:
        """Return an unpredictable seed."""
        return self.rng.getrandbits(62)

    def source(self, workload: ResolvedWorkload, family: Family | None = None) -> InputSource:
        """Return values of a workload's inputs under a new seed."""
        return self.sources.of(workload["inputs"], family)

    def on_workload(
        self, workload: ResolvedWorkload, candidate: RunnerHandle, family: Family | None = None
    ) -> WorkloadRun:
        """Return the candidate's calls on a workload, on values under a new seed."""
        call_s = INTERPRETED_CALL_S if self.interpreted else self.job["limits"]["call_s"]
        source = self.source(workload, family)
        return WorkloadRun(workload, self.runners, candidate, call_s, source, self.rng, elsewhere=self.interpreted)

    def enter(self, gate: Gate, workload: ResolvedWorkload) -> None:
        """Tell that the job is at a workload of a gate; a timing that waits for this compilation goes first."""
        if self._share is not None:
            self._share.give_way()
        number = next((n for n, one in enumerate(self.workloads, 1) if one["id"] == workload["id"]), 0)
        self.report.enter(gate, workload, len(self.workloads), number)

    @contextmanager
    def bound(self, candidate: RunnerHandle, workload: ResolvedWorkload, gate: Gate) -> Iterator[None]:
        """Bind the candidate to a workload; its faults inside end the job at `gate`."""
        with (
            self.report.gate(gate),
            candidate_at_fault(gate, workload, carried=self.carried),
            self._interpreter_at_fault(gate, workload),
        ):
            self.enter(gate, workload)
            slots = min(CHECK_SLOTS, slots_for(workload, self.device))
            candidate.bind(input_specs(workload), result_specs(workload), slots)
            yield

    def bind_for_timing(self, candidate: RunnerHandle, workload: ResolvedWorkload) -> None:
        """Bind the candidate as the baselines are: on a GPU in a baseline's own slots."""
        beside = self.runners.bound_to(workload)
        candidate.bind(input_specs(workload), result_specs(workload), slots_for(workload, self.device), beside)

    @contextmanager
    def _interpreter_at_fault(self, gate: Gate, workload: ResolvedWorkload) -> Iterator[None]:
        """Check whether a failure may be the interpreter's and not the candidate's.

        Triton's interpreter computes bfloat16 otherwise than a GPU, and rounds to 8-bit floats otherwise (to 4.0 what
        is nearest to 8.0), so a wrong value proves nothing there. Nor does a call that takes it too long, or one that
        meets what it does not know (inline assembly, say).
        """
        try:
            yield
        except Wrong as wrong:
            dtypes = " ".join(item["dtype"] for item in [*workload["inputs"], *workload["outputs"]])
            assert self.job["candidate"] is not None
            used = f"{dtypes} {self.job['candidate']['source']}"
            unlike = next((kind for kind in _UNLIKE_A_GPU if kind in used), None)
            if not self.interpreted or unlike is None:
                raise
            reason = f"no CUDA device, and Triton's interpreter computes {unlike} otherwise than one: {wrong}"
            raise Stopped("ambiguous", gate, reason, wrong.failure) from wrong
        except RunnerFault as fault:
            unknown = fault.kind == "raises" and _UNKNOWN_TO_INTERPRETER in str(fault)
            if not self.interpreted or fault.runner != "candidate" or not (unknown or fault.kind == "timeout"):
                raise
            failure = failure_of(fault, workload["id"])
            blamed = "does not know what the kernel uses" if unknown else "may be what is slow"
            reason = f"no CUDA device, and Triton's interpreter {blamed}: {failure['message']}"
            raise Stopped("ambiguous", gate, reason, failure) from fault


_LACKING = f"{HostError.__name__}: {NOT_CARRIED}"
"""How a runner says that builds lack something: with an error that no candidate can raise."""


@contextmanager
def candidate_at_fault(gate: Gate, workload: ResolvedWorkload | None, *, carried: bool = False) -> Iterator[None]:
    """Turn a candidate's fault inside into the end of the job at this gate.

    carried: its build came with the job; what that build lacks is not the candidate's fault.
    """
    try:
        yield
    except Wrong as wrong:
        raise Stopped("rejected", gate, str(wrong), wrong.failure) from wrong
    except RunnerFault as fault:
        if fault.external or fault.runner != "candidate":
            raise
        failure = failure_of(fault, workload["id"] if workload else None)
        if carried and fault.kind == "raises" and str(fault).startswith(_LACKING):
            raise Stopped("ambiguous", gate, failure["message"], failure) from fault
        raise Stopped("rejected", gate, failure["message"], failure) from fault


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
    """Refuse a candidate that no gate has read where its runner would not be fully confined.

    Raises Stopped.
    """
    if reached.reaches(FREE_PYTHON_SANDBOX):
        return
    found = f"python on a host that confines its runner at level {reached.level} ({', '.join(reached.layers)})"
    expected = f"a host that reaches {FREE_PYTHON_SANDBOX}: free Python passes no gate, the sandbox alone holds it"
    reason = f"candidate.language: found {found}, expected {expected}"
    failure: Failure = {"kind": "sandbox", "message": reason, "field": "candidate.language"}
    raise Stopped("ambiguous", "sandbox", reason, failure | {"found": reached.level, "expected": FREE_PYTHON_SANDBOX})
