"""Geometric means over bench workloads, by their weights: of speed-ups' intervals, of the share of the limit."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from warpsmith.kernels_db.job.documents import WorkloadVerdict


def weight_of(workload: Mapping[str, Any]) -> float:
    """Return how often a workload of a job or a verdict occurs; 1 where it does not say."""
    return float(workload.get("weight", 1.0))


def geometric_mean(values: Sequence[float], weights: Sequence[float]) -> float:
    """Return the geometric mean of positive `values` by positive `weights`, one for each value.

    Raises ValueError where there is no value, or where the lengths differ.
    """
    if not values or len(values) != len(weights):
        raise ValueError(f"weights: found {len(weights)} for {len(values)} values, expected one for each, and any")
    total = math.fsum(weights)
    logs = (weight * math.log(value) for value, weight in zip(values, weights, strict=True))
    return math.exp(math.fsum(logs) / total)


def mean_ends(workloads: Sequence[WorkloadVerdict], baseline: str) -> tuple[float, float] | None:
    """Return the mean lower and upper ends of the speed-ups' intervals over `baseline`.

    They are geometric means, over the bench workloads and by their weights, of the ends of the 95 % intervals; None
    where a bench workload has no interval for it. They lie no nearer than the ends of the mean's own interval, so a
    comparison by them errs on the side of calling something neither faster nor slower.
    """
    bench = [workload for workload in workloads if workload["role"] == "bench"]
    intervals = [workload["ci95"].get(baseline) for workload in bench]
    known = [interval for interval in intervals if interval is not None and min(interval) > 0]
    if not intervals or len(known) < len(intervals):
        return None
    weights = [weight_of(workload) for workload in bench]
    low, high = (geometric_mean(ends, weights) for ends in zip(*known, strict=True))
    return low, high


def limit_fraction(workloads: Sequence[WorkloadVerdict]) -> float | None:
    """Return the share of the physical limit, the geometric mean over the bench workloads by their weights.

    None where one has no limit.
    """
    bench = [workload for workload in workloads if workload["role"] == "bench"]
    shares = [workload["limit_fraction"] for workload in bench]
    known = [share for share in shares if share is not None and share > 0]
    if not shares or len(known) < len(shares):
        return None
    return geometric_mean(known, [weight_of(workload) for workload in bench])
