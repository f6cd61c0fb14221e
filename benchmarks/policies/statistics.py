"""Compares policies: best-so-far at equal cost, and paired bootstrap intervals.

The intervals are over ops and seeds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

RESAMPLES = 10_000


def log_best(bests: Mapping[str, Sequence[float]]) -> dict[str, NDArray[np.float64]]:
    """Return, by op, the logarithm of the best speed-up of each seed."""
    return {op: np.log(np.asarray(values, dtype=np.float64)) for op, values in bests.items()}


def geomean(bests: Mapping[str, Sequence[float]]) -> float:
    """Return the geometric mean of the best speed-ups.

    It is over the seeds of an op, then over the ops.
    """
    return float(np.exp(np.mean([values.mean() for values in log_best(bests).values()])))


def ratio_interval(
    one: Mapping[str, Sequence[float]], other: Mapping[str, Sequence[float]], seed: int = 0
) -> tuple[float, float, float]:
    """Return how many times better `one` did than `other`: geometric mean and 95 % interval.

    At equal cost. Paired by op and seed. A bootstrap in two stages: ops are drawn with replacement, then seeds
    within each drawn op (Davison and Hinkley, Bootstrap Methods and their Application, 1997, ch. 3.8).
    """
    left, right = log_best(one), log_best(other)
    differences = [left[op] - right[op] for op in sorted(left)]
    rng = np.random.default_rng(seed)
    ops, seeds = len(differences), min(len(values) for values in differences)
    table = np.stack([values[:seeds] for values in differences])
    drawn_ops = rng.integers(0, ops, size=(RESAMPLES, ops))
    drawn_seeds = rng.integers(0, seeds, size=(RESAMPLES, ops, seeds))
    means = table[drawn_ops[:, :, None], drawn_seeds].mean(axis=(1, 2))
    low, high = np.percentile(means, [2.5, 97.5])
    return float(np.exp(table.mean())), float(np.exp(low)), float(np.exp(high))
