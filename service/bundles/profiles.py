"""Checks of a profile that came in a bundle: its names stand in tables, and Nsight Compute's metrics in requests."""

from __future__ import annotations

from typing import Any, NotRequired, TypedDict

from warpsmith.kernels_db.job.documents import Profile, Verdict
from warpsmith.service.bundles.bounds import check_all_names, check_names, check_range
from warpsmith.workers.judge.protocol.contract import BrokenDocument, check

MOST_ROWS, LONGEST_NAME = 100, 300
"""Limits of a profile's tables, above those that the judge itself has."""


class SandboxFacts(TypedDict):
    """What confined a process."""

    level: str
    layers: list[str]


class _KernelLaunch(TypedDict):
    """The facts of a kernel's first launch in a profile."""

    grid: NotRequired[Any]
    block: NotRequired[Any]
    registers: NotRequired[Any]
    shared_bytes: NotRequired[Any]
    occupancy: NotRequired[Any]


class _EventFacts(_KernelLaunch):
    """The facts of an event of a trace; `name`: of the line on which it is drawn."""

    stream: NotRequired[Any]
    name: NotRequired[str]


class _Event(TypedDict):
    """One event of a Chrome trace, as the judge writes it."""

    ph: NotRequired[str]
    name: NotRequired[str]
    cat: NotRequired[str]
    ts: NotRequired[float]
    dur: NotRequired[float]
    pid: NotRequired[int]
    tid: NotRequired[int]
    args: NotRequired[_EventFacts]


class _Trace(TypedDict):
    displayTimeUnit: NotRequired[str]
    traceEvents: NotRequired[list[_Event]]


def check_profile(verdict: Verdict) -> None:
    """Check what a profile tells: its names stand in tables, and Nsight Compute's metrics in requests."""
    if verdict["level"] == "profile" and verdict["verdict"] == "accepted":
        raise BrokenDocument("verdict.verdict", "accepted", "another one: a profile decides nothing")
    profile = verdict.get("profile")
    if profile is None:
        return
    if verdict["level"] != "profile":
        raise BrokenDocument("verdict.profile", "some", f"none at level {verdict['level']}")
    check_all_names(Profile, profile, "verdict.profile")
    check(_Trace, profile["trace"], "verdict.profile.trace")
    check_all_names(_Trace, profile["trace"], "verdict.profile.trace")
    kernels = profile.get("nsight", {"kernels": []})["kernels"]
    for name, rows in (("rows", profile["rows"]), ("nsight.kernels", kernels)):
        if len(rows) > MOST_ROWS:
            raise BrokenDocument(f"verdict.profile.{name}", f"{len(rows)} of them", f"at most {MOST_ROWS}")
    for position, row in enumerate(profile["rows"]):
        path = f"verdict.profile.rows[{position}]"
        check_names(_KernelLaunch, row.get("launch", {}), f"{path}.launch.")
        _check_length(row["name"], f"{path}.name")
        _check_length(row["kind"], f"{path}.kind")
        for name, value in (("count", row["count"]), ("total_us", row["total_us"]), ("mean_us", row["mean_us"])):
            check_range(value, f"{path}.{name}", least=0.0)
    if "sandbox" in profile.get("nsight", {}):
        check(SandboxFacts, profile["nsight"]["sandbox"], "verdict.profile.nsight.sandbox")
        check_names(SandboxFacts, profile["nsight"]["sandbox"], "verdict.profile.nsight.sandbox.")
    for position, kernel in enumerate(kernels):
        path = f"verdict.profile.nsight.kernels[{position}]"
        _check_length(kernel["name"], f"{path}.name")
        for name, value in kernel["metrics"].items():
            _check_length(name, f"{path}.metrics.{name}"[:200])
            check_range(value, f"{path}.metrics.{name}"[:200], least=0.0)


def _check_length(name: str, path: str) -> None:
    if len(name) > LONGEST_NAME:
        raise BrokenDocument(path, f"{len(name)} characters", f"at most {LONGEST_NAME}")
