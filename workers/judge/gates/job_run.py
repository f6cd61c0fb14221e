"""What the gates of one job share: the job and its report, where values come from, who is bound to what."""

from __future__ import annotations

import random
import secrets
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass

import torch

from warpsmith.kernels_db.job.documents import Gate, Job, ResolvedWorkload, WorkloadVerdict
from warpsmith.workers.judge.clock.physics import Peaks
from warpsmith.workers.judge.clock.probe import StartProbe
from warpsmith.workers.judge.gates.candidates import Prepared
from warpsmith.workers.judge.gates.verdict import Report, Stopped
from warpsmith.workers.judge.gates.workload_run import Trial, Wrong, failure_of
from warpsmith.workers.judge.machine.buffers import TensorSpec
from warpsmith.workers.judge.reference.baselines import OpRunners, input_specs, result_specs, slots_for
from warpsmith.workers.judge.runner.faults import ContenderFault
from warpsmith.workers.judge.runner.runner_handle import Contender
from warpsmith.workers.judge.values.families import Family
from warpsmith.workers.judge.values.inputs import CPU, InputSource

CHECK_SLOTS = 3
"""Slots that checked calls rotate through: fresh pointers for each."""

INTERPRETED_CALL_S = 60.0
"""Longest call under Triton's interpreter, which runs a kernel thousands of times slower than a device."""

_UNKNOWN_TO_INTERPRETER = "not supported in interpreter mode"
"""What Triton's interpreter says of inline assembly and of functions from libraries."""

Make = Callable[[str, TensorSpec, int], torch.Tensor]


@dataclass
class Case:
    """One job on its way through the gates.

    `exclusive()` holds the clock, `on_device()` the device for whatever else runs on it, where that would disturb the
    clock; `start_probe` starts the memory probe.
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

    @property
    def interpreted(self) -> bool:
        """Whether the candidate runs under Triton's interpreter, for want of a GPU."""
        return self.prepared is not None and self.prepared.interpreted

    def bench(self) -> list[ResolvedWorkload]:
        """The workloads that are timed."""
        return [workload for workload in self.workloads if workload["role"] == "bench"]

    def entry(self, workload: ResolvedWorkload) -> WorkloadVerdict:
        """What the verdict will say of a workload."""
        return next(entry for entry in self.report.workloads if entry["id"] == workload["id"])

    def note(self, text: str) -> None:
        """Have the verdict say something, once."""
        if text not in self.report.notes:
            self.report.notes.append(text)

    def note_error(self, workload: ResolvedWorkload, trial: Trial) -> None:
        """Keep the candidate's largest error on a workload."""
        errors = self.entry(workload)["error"]
        if trial.candidate_l2 is not None:
            errors["candidate"] = max(trial.candidate_l2, errors["candidate"] or 0.0)

    def number(self) -> int:
        """A seed that nobody can foresee."""
        return self.rng.getrandbits(62)

    def source(self, workload: ResolvedWorkload, family: Family | None = None) -> InputSource:
        """Values of a workload's inputs under a new seed."""
        return InputSource(workload["inputs"], self.number(), self.make, self.device, family)

    def trial(self, workload: ResolvedWorkload, candidate: Contender, family: Family | None = None) -> Trial:
        """The candidate's calls on a workload, on values under a new seed."""
        call_s = INTERPRETED_CALL_S if self.interpreted else self.job["limits"]["call_s"]
        return Trial(workload, self.runners, candidate, call_s, self.source(workload, family), self.rng)

    @contextmanager
    def bound(self, candidate: Contender, workload: ResolvedWorkload, gate: Gate) -> Iterator[None]:
        """The candidate bound to a workload; what it does wrong inside ends the job at `gate`."""
        with self.report.gate(gate), candidate_at_fault(gate, workload), self._interpreter_at_fault(gate, workload):
            slots = min(CHECK_SLOTS, slots_for("candidate", workload, self.device))
            candidate.bind(input_specs(workload), result_specs(workload), slots)
            yield

    @contextmanager
    def _interpreter_at_fault(self, gate: Gate, workload: ResolvedWorkload) -> Iterator[None]:
        """Triton's interpreter computes bfloat16 otherwise than a GPU, so a wrong value proves nothing there; nor does
        a call that takes it too long, or that meets what it does not know (inline assembly, say).
        """
        try:
            yield
        except Wrong as wrong:
            dtypes = {item["dtype"] for item in [*workload["inputs"], *workload["outputs"]]}
            assert self.job["candidate"] is not None
            if not self.interpreted or ("bfloat16" not in dtypes and "bfloat16" not in self.job["candidate"]["source"]):
                raise
            reason = f"no CUDA device, and Triton's interpreter computes bfloat16 otherwise than one: {wrong}"
            raise Stopped("ambiguous", gate, reason, wrong.failure) from wrong
        except ContenderFault as fault:
            unknown = fault.kind == "raises" and _UNKNOWN_TO_INTERPRETER in str(fault)
            if not self.interpreted or fault.contender != "candidate" or not (unknown or fault.kind == "timeout"):
                raise
            failure = failure_of(fault, workload["id"])
            blamed = "does not know what the kernel uses" if unknown else "may be what is slow"
            reason = f"no CUDA device, and Triton's interpreter {blamed}: {failure['message']}"
            raise Stopped("ambiguous", gate, reason, failure) from fault


@contextmanager
def candidate_at_fault(gate: Gate, workload: ResolvedWorkload | None) -> Iterator[None]:
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
