"""Find the meaning of a new verdict on a stored kernel, given its earlier evidence. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple, cast

from warpsmith.kernels_db.job.documents import Verdict, WorkloadVerdict, judged_elsewhere
from warpsmith.kernels_db.job.means import mean_ends

Outcome = Literal["holds", "wrong", "slower", "uncompilable", "unknown"]

COMPILE_GATES = ("gate", "compile")
"""Refused before anything of it ran."""

CHECK_GATES = ("screen", "verify", "time")
"""Run, and found to do something else than its op asks."""


class Finding(NamedTuple):
    """A re-verification's result, and why.

    `unknown` says nothing of the kernel and leaves it as it was.
    """

    outcome: Outcome
    reason: str


def finding(evidence: Mapping[str, Any], verdict: Verdict) -> Finding:
    """Compare `verdict` on a kernel with `evidence`, the verify verdict that it was kept for.

    `verdict` is of level verify.

    holds          accepted, and not surely slower than a baseline that counts
    slower         accepted, and surely slower: the whole 95 % interval of its speed-up is below 1
    wrong          rejected by a check: wrong values, a crash, writes out of bounds, a call that does not end ...
    uncompilable   rejected before it ran
    unknown        the judge could not tell (ambiguous, quarantined), or the op or the host may be at fault: it was
                   judged on another device than its target's, memory ran out, a compiler took too long, a process was
                   killed from outside, the device fell over

    The fastest baseline counts. Where the kernel was surely slower than a baseline when it was kept (it was kept for
    being faster than another), being so still is no drift: that baseline does not count.
    """
    word, gate = verdict["verdict"], verdict["gate"]
    if (device := judged_elsewhere(verdict)) is not None:
        return Finding("unknown", f"judged on {device}, expected {verdict['target']}: {verdict['reason']}")
    if word == "accepted":
        return _speed(evidence, verdict["workloads"])
    if word == "rejected" and (cause := _of_the_host(verdict)) is not None:
        return Finding("unknown", f"the host may be at fault ({cause} at {gate}): {verdict['reason']}")
    if word == "rejected" and gate in COMPILE_GATES:
        return Finding("uncompilable", verdict["reason"])
    if word == "rejected" and gate in CHECK_GATES:
        return Finding("wrong", verdict["reason"])
    return Finding("unknown", f"{word} at {gate}: {verdict['reason']}")


def _of_the_host(verdict: Verdict) -> str | None:
    """Return the host's possible share in a rejection; None where the kernel itself is at fault."""
    failure = verdict["failure"]
    if failure is None:
        return None
    # A runner's memory is bounded by what the host has left when the job starts.
    return failure.get("cause") or ("memory" if failure["kind"] == "memory" else None)


def _speed(evidence: Mapping[str, Any], workloads: Sequence[WorkloadVerdict]) -> Finding:
    then = cast("Sequence[WorkloadVerdict]", evidence.get("workloads") or [])
    baselines = dict.fromkeys(name for workload in workloads for name in workload["ci95"])
    now = {name: ends for name in baselines if (ends := mean_ends(workloads, name)) is not None}
    counted = {name: ends for name, ends in now.items() if not _surely_slower(mean_ends(then, name))}
    if not counted:
        return Finding("unknown", "accepted, but no baseline was timed that it could be held against")
    fastest = min(counted, key=lambda name: counted[name][1])
    low, high = counted[fastest]
    told = f"{low:.3g} to {high:.3g} times as fast as {fastest}"
    if _surely_slower((low, high)):
        return Finding("slower", f"slower than its fastest baseline: {told}")
    return Finding("holds", f"right, and {told}")


def _surely_slower(ends: tuple[float, float] | None) -> bool:
    return ends is not None and ends[1] < 1.0
