"""Speed-ups over several workloads at once, and the interval of a median."""

from __future__ import annotations

import math
from collections.abc import Sequence

from warpsmith.service.documents.workloads import WorkloadTimes

_TAIL = 0.025


def compute_mean_speedups(workloads: Sequence[WorkloadTimes]) -> dict[str, float]:
    """Compute the geometric mean over bench workloads of the speed-up over each baseline."""
    logs: dict[str, list[float]] = {}
    for workload in workloads:
        if workload.role == "bench":
            for baseline, ratio in workload.speedup.items():
                if ratio > 0:
                    logs.setdefault(baseline, []).append(math.log(ratio))
    return {baseline: math.exp(sum(values) / len(values)) for baseline, values in logs.items()}


def compute_mean_intervals(workloads: Sequence[WorkloadTimes]) -> dict[str, list[float]]:
    """Compute the 95 % interval of each such mean.

    Leaves out a baseline where a workload has no interval. Workloads are timed one after another, so their errors are
    independent: on the logarithmic scale the half-widths above and below add in quadrature.
    """
    bench = [workload for workload in workloads if workload.role == "bench"]
    found: dict[str, list[float]] = {}
    for baseline, mean in compute_mean_speedups(workloads).items():
        own = [workload for workload in bench if workload.speedup.get(baseline, 0.0) > 0]
        ends = [(workload.speedup[baseline], *workload.ci95.get(baseline, [])) for workload in own]
        if any(len(end) != 3 or min(end) <= 0 for end in ends):
            continue
        below = math.hypot(*(math.log(ratio / low) for ratio, low, _ in ends)) / len(ends)
        above = math.hypot(*(math.log(high / ratio) for ratio, _, high in ends)) / len(ends)
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
