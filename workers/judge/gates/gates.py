"""One job's passage through the gates after compiling: reference, admission, screen, verify, time, physics."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

from warpsmith.kernels_db.job.documents import Failure, Gate, ResolvedWorkload, VerdictWord, WorkloadVerdict, tier_of
from warpsmith.workers.judge.clock import timing
from warpsmith.workers.judge.gates.job_run import Case, candidate_at_fault
from warpsmith.workers.judge.gates.measurement import available, believe, measure
from warpsmith.workers.judge.gates.verdict import Stopped, wrong_value
from warpsmith.workers.judge.gates.verification import check, name_kernels, verify
from warpsmith.workers.judge.reference import admission
from warpsmith.workers.judge.reference.baselines import (
    OpRunners,
    ReferenceFault,
    baseline_modes,
    result_positions,
    workload_key,
)
from warpsmith.workers.judge.reference.input_checks import declared
from warpsmith.workers.judge.reference.refusals import refusal
from warpsmith.workers.judge.runner.runner_handle import Contender
from warpsmith.workers.judge.values import families

SCREEN_SEEDS, VERIFY_SEEDS = 2, 3

NOT_TIMED = "on a GPU the runner's own process arms bursts, flushes the cache and reads events, and free Python owns it"

Outcome = tuple[VerdictWord, Gate, str, Failure | None]


@dataclass
class Passage:
    """Takes a case through the gates, in order."""

    case: Case

    def reference(self) -> None:
        """Check the reference on every workload and derive the tolerances. Raises Stopped."""
        with self.case.report.gate("reference"), self.case.on_device():
            for workload in list(self.case.workloads):
                source = partial(self.case.source, workload)
                if workload.get("derived"):
                    try:
                        self.case.runners.learn(workload, source)
                    except ReferenceFault as fault:
                        self.case.workloads.remove(workload)
                        where = ", ".join(f"{name} {size}" for name, size in workload["axes"].items())
                        self.case.report.notes.append(
                            f"hold-out at {where} left out: the reference is not right there ({fault})"
                        )
                        continue
                with _reference_at_fault(workload):
                    self.case.runners.learn(workload, source)
                self.case.report.workloads.append(_untimed(workload, self.case.runners))

    def contest(self, start_candidate: Callable[[], Contender] | None) -> Outcome:
        """Take the candidate through screen, verify and time; without one, examine the op and time the baselines.
        Raises Stopped.
        """
        if start_candidate is None:
            with self.case.on_device():
                self._admit()
                return self._timed(None)
        with self.case.report.gate("screen"), candidate_at_fault("screen", None):
            candidate = start_candidate()
        try:
            interpreted = self.case.interpreted
            with self.case.on_device():
                check(
                    self.case,
                    candidate,
                    self.case.workloads if interpreted else self.case.bench(),
                    SCREEN_SEEDS,
                    "screen",
                )
                if self.case.job["level"] == "verify":
                    check(self.case, candidate, self.case.workloads, VERIFY_SEEDS, "verify")
                    verify(self.case, candidate, interpreted)
                if self._unclocked():
                    return "ambiguous", "time", f"right on {self._checked()}, not timed: {NOT_TIMED}", None
                outcome = self._timed(candidate)
                if self.case.job["level"] == "verify" and self.case.device.type == "cuda":
                    name_kernels(self.case, candidate)
                return outcome
        finally:
            candidate.close()

    def _unclocked(self) -> bool:
        """Whether no time of this candidate could be believed."""
        candidate = self.case.job["candidate"]
        return candidate is not None and tier_of(candidate["language"]) == "sandbox" and self.case.device.type == "cuda"

    def _checked(self) -> str:
        return "every workload" if self.case.job["level"] == "verify" else "the bench workloads"

    def _timed(self, candidate: Contender | None) -> Outcome:
        if not self.case.job["target"].startswith(self.case.device.type):
            return "ambiguous", "time", _no_device(self.case), None
        with self.case.report.gate("time"):
            scored = [measure(self.case, workload, candidate) for workload in self.case.bench()]
        if candidate is None:
            self._keep_generated()
            return "accepted", "time", "the reference is sound and the baselines are measured", None
        believe(self.case)
        checked = self._checked()
        if not scored:
            return "accepted", "time", f"right on {checked}; no bench workload, so nothing was timed", None
        self.case.report.score, interval = timing.score(
            scored, self.case.number(), timing.OFFSET_US[self.case.device.type]
        )
        self.case.report.score_ci95 = list(interval)
        spread = f"{interval[0]:.3g} to {interval[1]:.3g}"
        reason = f"right on {checked}; {self.case.report.score:.3g} times as fast as the fastest baseline ({spread})"
        return "accepted", "time", reason, None

    def _keep_generated(self) -> None:
        """Put what torch.compile generated for the largest timed workload on the verdict."""
        if "compile" not in self.case.job["op"]["baselines"]:
            return
        for workload in sorted(self.case.bench(), key=families.elements, reverse=True):
            found = self.case.runners.generated.get(workload_key(workload))
            if found is not None:
                self.case.report.generated = found
                return

    def _admit(self) -> None:
        """Whether the spec tells wrong answers from right ones, and lets PyTorch's own pass. Raises Stopped."""
        with self.case.report.gate("admission"):
            job = self.case.job
            self.case.report.admission = admission.examine(
                job["op"], self.case.workloads, self.case.runners, self.case.source, self.case.rng
            )
            if (failure := refusal(self.case.report.admission)) is not None:
                raise Stopped("rejected", "admission", failure["message"], failure)
            if job["target"].startswith(self.case.device.type):
                self._compiled_passes()

    def _compiled_passes(self) -> None:
        """Raise Stopped where compiled PyTorch misses the op's own tolerance: so would most kernels. A derived
        tolerance that it misses is told.
        """
        workload = min(self.case.bench() or self.case.workloads, key=families.elements)
        modes = available(self.case, workload, baseline_modes(self.case.job["op"]))
        question = declared(self.case.runners, workload, self.case.source(workload))
        for mode in modes:
            found = self.case.runners.run(mode, workload, question.values)
            compared = self.case.runners.check(found, question.expected, question.limits)
            for (name, _), limit, one in zip(result_positions(workload), question.limits, compared, strict=True):
                if one.passed:
                    continue
                wrong = wrong_value(one, question.place, name, limit is not None and limit.own is not None)
                if limit is None or limit.own is None:
                    self.case.note(f"baseline {mode} is outside the tolerance: {wrong['message']}")
                    continue
                message = f"PyTorch itself ({mode}) misses the op's own tolerance: {wrong['message']}"
                expected = "a tolerance that PyTorch meets, or none, to have it derived from PyTorch's own error"
                failure: Failure = {**wrong, "kind": "admission", "message": message, "expected": expected}
                raise Stopped("rejected", "admission", message, {**failure, "field": f"outputs.{name}.tolerance"})


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


def _no_device(case: Case) -> str:
    """What was done without the device of the target. Hold-outs are counted, not named."""
    if case.prepared is None:
        return "no CUDA device: the reference was checked on the CPU, nothing was timed"
    arch = case.job["target"].partition(":")[2]
    named = [workload["id"] for workload in case.workloads if workload["role"] != "holdout"]
    hidden = len(case.workloads) - len(named)
    checked = named + ([f"{hidden} hold-out{'s' if hidden > 1 else ''}"] if hidden else [])
    where = f"under Triton's interpreter on {' and '.join(checked)}"
    return f"no CUDA device: checked {where}, compiled for {arch}, not timed"
