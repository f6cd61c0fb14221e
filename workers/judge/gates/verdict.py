"""Build verdicts: the failure found first, and the document that leaves the judge."""

from __future__ import annotations

import hashlib
import json
import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Literal

from warpsmith.kernels_db.job.attack_documents import Attack
from warpsmith.kernels_db.job.documents import (
    AdmissionCheck,
    Failure,
    Gate,
    Generated,
    HostTime,
    Job,
    Profile,
    Progress,
    ResolvedWorkload,
    Verdict,
    VerdictWord,
    WorkloadVerdict,
    tier_of,
)
from warpsmith.kernels_db.job.protocol_number import PROTOCOL
from warpsmith.kernels_db.job.shown_numbers import apart
from warpsmith.kernels_db.job.sweep_documents import Sweep
from warpsmith.workers.judge.machine.host import busy_note
from warpsmith.workers.judge.sandbox.sandbox import NOTHING_RAN
from warpsmith.workers.judge.values.compare import Comparison

FREE_PYTHON_NOTE = "free Python, of the sandbox tier: no gate has read it"


class Stopped(Exception):  # noqa: N818 - named for what happened
    """A gate ended the job."""

    def __init__(self, verdict: VerdictWord, gate: Gate, reason: str, failure: Failure | None = None) -> None:
        super().__init__(reason)
        self.verdict: VerdictWord = verdict
        self.gate: Gate = gate
        self.failure = failure


class Unfit(Exception):  # noqa: N818 - named for what the host is
    """This host cannot judge now: a job has no verdict here, and may have one elsewhere or later.

    `part`: the disk (full, it takes no writes, or the cache directory cannot be made) or the device (lost).
    """

    def __init__(self, part: Literal["disk", "device"], reason: str) -> None:
        super().__init__(reason)
        self.part = part


class Report:
    """Collects what a verdict says while a job passes through the gates."""

    def __init__(self, job: Job, tell: Callable[[Progress], None] | None = None) -> None:
        """`tell` gets where the job is, as it gets there."""
        self.job = job
        self._tell = tell
        self.workloads: list[WorkloadVerdict] = []
        self.compile: dict[str, Any] | None = None
        self.sandbox = NOTHING_RAN  # of the candidate's runner; at baseline level the least of the reference's
        self.compiler: dict[str, Any] | None = None  # the confinement of the compiler, where one was started
        self.compilers: dict[str, str] = {}  # versions that compiled for a device that is not here, by distribution
        self.score: float | None = None
        self.score_ci95: list[float] | None = None
        self.admission: list[AdmissionCheck] | None = None
        self.attack: Attack | None = None
        self.generated: Generated | None = None
        self.profile: Profile | None = None
        self.sweep: Sweep | None = None
        self.experts: dict[str, dict[str, str]] = {}  # of the op: the distributions that each imports, with versions
        self.sweep_seconds: float | None = None  # that a sweep held the device
        self.host_us: HostTime | None = None
        self.notes: list[str] = []
        self.calls: dict[str, int] = {}  # of the candidate's `run`, by gate
        self.seconds: dict[str, float] = {}
        self.exchange_us: float | None = None  # what the clock reads where nothing is run: part of every time
        self.others: list[float] = []  # share of the host that others took while a workload was timed

    @contextmanager
    def gate(self, name: Gate | Literal["exclusive"]) -> Iterator[None]:
        """Count the wall clock spent inside towards a gate, or towards holding the device's lease."""
        if name != "exclusive":
            self.enter(name)
        start = time.monotonic()
        try:
            yield
        finally:
            self.seconds[name] = round(self.seconds.get(name, 0.0) + time.monotonic() - start, 4)

    def enter(self, gate: Gate, workload: ResolvedWorkload | None = None, among: int = 0, number: int = 0) -> None:
        """Tell that the job is at a gate, and on which of the `among` workloads, the `number`th, it is there."""
        if self._tell is not None:
            named = None if workload is None or workload["role"] == "holdout" else workload["id"]
            self._tell({"gate": gate, "workload": named, "number": number, "total": among})

    def verdict(
        self,
        word: VerdictWord,
        gate: Gate,
        reason: str,
        failure: Failure | None,
        device: dict[str, Any],
        versions: dict[str, str],
    ) -> Verdict:
        """Return the finished document. Numbers that are not finite become text: JSON has none."""
        job = self.job
        notes = list(self.notes)
        if (busy := busy_note(max(self.others, default=0.0))) is not None:
            notes.append(busy)
        candidate = job["candidate"]
        if candidate is not None and tier_of(candidate["language"]) == "sandbox":
            notes.append(FREE_PYTHON_NOTE)
        identity = json.dumps([device.get("name"), device.get("cores"), versions, PROTOCOL], sort_keys=True)
        document: Verdict = {
            "id": job["id"],
            "level": job["level"],
            "verdict": word,
            "gate": gate,
            "reason": "; ".join([reason, *notes]),
            "op": job["op"]["name"],
            "target": job["target"],
            "language": candidate["language"] if candidate else None,
            "workloads": self.workloads,
            "failure": failure,
            "compile": self.compile,
            "score": self.score,
            "score_ci95": self.score_ci95,
            "sandbox": self.sandbox | ({} if self.compiler is None else {"compiler": self.compiler}),
            "device": device | ({} if self.exchange_us is None else {"exchange_us": round(self.exchange_us, 3)}),
            "versions": versions | self.compilers,
            "fingerprint": hashlib.sha256(identity.encode()).hexdigest(),
            "protocol": PROTOCOL,
            "seconds": self.seconds,
        }
        if candidate is not None:
            document["tier"] = tier_of(candidate["language"])
        if self.calls:
            document["calls"] = self.calls
        if self.admission is not None:
            document["admission"] = self.admission
        if self.attack is not None:
            document["attack"] = self.attack
        if self.experts:
            document["experts"] = self.experts
        if self.sweep is not None:
            document["sweep"] = self.sweep
        if self.sweep_seconds is not None:
            document["sweep_seconds"] = self.sweep_seconds
        if self.generated is not None:
            document["generated"] = self.generated
        if self.profile is not None:
            document["profile"] = self.profile
        if self.host_us is not None:
            document["host_us"] = self.host_us
        finished: Verdict = json_safe(document)
        return finished


def json_safe(value: Any) -> Any:
    """Return the document with NaN and infinities as the strings "nan", "inf" and "-inf"."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, dict):
        return {key: json_safe(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [json_safe(item) for item in value]
    return value


def wrong_value(comparison: Comparison, place: str, tensor: str, own: bool) -> Failure:
    """Return the failure of a comparison that did not pass.

    `place` is the message's name of the workload and its values.
    """
    element = f"{tensor}{comparison.index}"
    found, expected = apart(comparison.found, comparison.expected)
    if comparison.kind == "not_written":
        what = f"{element} was not written"
    elif comparison.cut:
        what = (
            f"{tensor} is cut toward zero and not rounded to the nearest number, as PyTorch rounds it: "
            f"{element} is {found}, expected {expected}"
        )
    elif comparison.wrong_elements:
        what = f"{element} is {found}, expected {expected}"
        if comparison.limit:
            what += f" within {comparison.limit:.3g}"
    else:
        what = (
            f"relative L2 error of {tensor} is {comparison.l2:.3g}, limit {comparison.l2_limit:.3g}; worst is {element}"
        )
    message = f"workload {place}: {what}; {comparison.wrong_elements} of {comparison.elements} elements are wrong"
    if own:
        message += " (by the op's own tolerance)"
    failure: Failure = {
        "kind": comparison.kind,
        "message": message,
        "tensor": tensor,
        "index": comparison.index or [],
        "expected": comparison.expected,
        "found": comparison.found,
        "wrong_elements": comparison.wrong_elements,
        "elements": comparison.elements,
    }
    if comparison.limit is not None:
        failure["limit"] = comparison.limit
    if comparison.cut:
        failure["pattern"] = "cut toward zero: a result of 16 bits must be rounded to the nearest number"
    if not comparison.wrong_elements:
        failure |= {"relative_l2": comparison.l2, "relative_l2_limit": comparison.l2_limit}
    return failure
