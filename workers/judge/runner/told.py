"""What a runner tells of its calls, checked: it may be anything, since untrusted code runs there."""

from __future__ import annotations

import math
from typing import Any

from warpsmith.kernels_db.job.documents import Configuration
from warpsmith.workers.judge.runner import tuned_configurations
from warpsmith.workers.judge.runner.faults import RunnerFault


def kernels(name: str, answer: dict[str, Any]) -> tuple[list[str], list[int], list[Configuration]]:
    """Return the names of a call's device kernels, how often each ran, and configurations of tuned ones.

    `name`: the runner's. Raises RunnerFault where they are something else.
    """
    names, calls = answer.get("names"), answer.get("calls")
    if not isinstance(names, list) or not all(isinstance(kernel, str) for kernel in names):
        raise RunnerFault(name, "protocol", "the runner gave no names of kernels")
    if not isinstance(calls, list) or len(calls) != len(names) or not all(type(count) is int for count in calls):
        raise RunnerFault(name, "protocol", "the runner gave no counts of kernels")
    try:
        return names, calls, tuned_configurations.checked(answer.get("configurations"))
    except TypeError as error:
        raise RunnerFault(name, "protocol", f"configurations of kernels: {error}") from None


def digest(name: str, answer: dict[str, Any]) -> int:
    """Return the digest of a burst. Raises RunnerFault where it is no number."""
    if type(found := answer.get("digest")) is int:
        return found
    raise RunnerFault(name, "protocol", "the runner gave no digest of its burst")


def late(name: str, answer: dict[str, Any], calls: int) -> int:
    """Return how many calls of a burst were launched late. Raises RunnerFault where it is no count of `calls`."""
    if type(found := answer.get("late")) is int and 0 <= found <= calls:
        return found
    raise RunnerFault(name, "protocol", "the runner gave no count of late calls of its burst")


def times(name: str, answer: dict[str, Any], calls: int) -> list[float]:
    """Return the times of a burst, in us. Raises RunnerFault where they are not `calls` valid numbers."""
    found = answer.get("microseconds")
    if (
        isinstance(found, list)
        and len(found) == calls
        and all(isinstance(value, float | int) and math.isfinite(value) and value >= 0 for value in found)
    ):
        return [float(value) for value in found]
    raise RunnerFault(name, "protocol", "the runner gave no times of its burst")
