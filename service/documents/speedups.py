"""Speed-ups over several workloads at once, and the interval of a median."""

from __future__ import annotations

import math
from collections.abc import Sequence

from warpsmith.kernels_db.job.means import geometric_mean
from warpsmith.service.documents.workloads import WorkloadTimes

_TAIL = 0.025


def compute_mean_speedups(workloads: Sequence[WorkloadTimes]) -> dict[str, float]:
    """Compute the geometric mean over bench workloads, by weight, of the speed-up over each baseline."""
    found: dict[str, list[tuple[float, float]]] = {}
    for workload in workloads:
        if workload.role == "bench":
            for baseline, ratio in workload.speedup.items():
                if ratio > 0:
                    found.setdefault(baseline, []).append((ratio, workload.weight))
    return {baseline: geometric_mean(*zip(*pairs, strict=True)) for baseline, pairs in found.items()}


def compute_mean_intervals(workloads: Sequence[WorkloadTimes]) -> dict[str, list[float]]:
    """Compute the 95 % interval of each such mean.

    Leaves out a baseline where a workload has no interval. Workloads are timed one after another, so their errors are
    independent: on the logarithmic scale the half-widths above and below, by their workloads' weights, add in
    quadrature.
    """
    bench = [workload for workload in workloads if workload.role == "bench"]
    found: dict[str, list[float]] = {}
    for baseline, mean in compute_mean_speedups(workloads).items():
        own = [workload for workload in bench if workload.speedup.get(baseline, 0.0) > 0]
        ends = [(workload.speedup[baseline], *workload.ci95.get(baseline, [])) for workload in own]
        if any(len(end) != 3 or min(end) <= 0 for end in ends):
            continue
        weights = [workload.weight for workload in own]
        parts = [(weight, end) for weight, end in zip(weights, ends, strict=True)]
        below = math.hypot(*(weight * math.log(ratio / low) for weight, (ratio, low, _) in parts)) / sum(weights)
        above = math.hypot(*(weight * math.log(high / ratio) for weight, (ratio, _, high) in parts)) / sum(weights)
        found[baseline] = [mean * math.exp(-below), mean * math.exp(above)]
    return found


def compute_median_interval(samples: Sequence[float]) -> list[float] | None:
    """Compute the 95 % interval of the median of the distribution of `samples`.

    By order statistics (Conover, Practical Nonparametric Statistics, 1999, 3.2); None for fewer than six samples, which
    cannot give that confidence.
    """
    count = len(samples)
    tail, rank = 0.0, 0
    while rank < count // 2:
        tail += math.comb(count, rank) / 2**count
        if tail > _TAIL:
            break
        rank += 1
    ordered = sorted(samples)
    return [ordered[rank - 1], ordered[-rank]] if rank else None
