"""Speed-ups over several workloads at once, and the interval of a median."""

from __future__ import annotations

import math
from collections.abc import Sequence

from warpsmith.kernels_db.job.means import geometric_mean
from warpsmith.service.documents.workloads import WorkloadTimes

_TAIL = 0.025


def compute_mean_speedups(workloads: Sequence[WorkloadTimes]) -> dict[str, float]:
    """Compute the geometric mean, by weight, of the speed-up over each baseline, over the bench workloads of the score.

    A baseline that was not timed on all of them has none: means over different workloads are not to be compared.
    """
    timed = _timed(workloads)
    common = [name for name in (timed[0].speedup if timed else ()) if all(_has(one, name) for one in timed)]
    weights = [workload.weight for workload in timed]
    return {name: geometric_mean([workload.speedup[name] for workload in timed], weights) for name in common}


def _timed(workloads: Sequence[WorkloadTimes]) -> list[WorkloadTimes]:
    """Return the bench workloads that the score is over: those on which a candidate and a baseline were timed."""
    return [workload for workload in workloads if workload.role == "bench" and workload.speedup]


def _has(workload: WorkloadTimes, baseline: str) -> bool:
    return workload.speedup.get(baseline, 0.0) > 0


def compute_mean_intervals(workloads: Sequence[WorkloadTimes]) -> dict[str, list[float]]:
    """Compute the 95 % interval of each such mean.

    Leaves out a baseline where a workload has no interval. Workloads are timed one after another, so their errors are
    independent: on the logarithmic scale the half-widths above and below, by their workloads' weights, add in
    quadrature.
    """
    own = _timed(workloads)
    found: dict[str, list[float]] = {}
    for baseline, mean in compute_mean_speedups(workloads).items():
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
