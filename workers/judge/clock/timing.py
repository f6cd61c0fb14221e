"""Timing: interleaved blocks and the statistics of ratios.

Contenders take turns in blocks, in a new random order each round, so that drift of the machine (frequency, neighbours)
hits all alike; a ratio is formed within rounds only. A block's value is the sum of its calls over their number: a
median of calls would leave out what a candidate does in the fewer half of them. What it does in the fewer half of the
blocks is added by `deferral`. The interval of a ratio of medians over rounds comes from a paired bootstrap over rounds
(Efron and Tibshirani, An Introduction to the Bootstrap, 1993, ch. 13): rounds are drawn with replacement, the same for
both sides.
"""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

RESAMPLES = 2000
_MOST_CALLS = 10
CLOSE_ENOUGH = 0.01
"""Half-width of a ratio's interval, relative, at which timing stops."""

_ROUNDS = {("cpu", False): (15, 15), ("cpu", True): (30, 45), ("cuda", False): (7, 7), ("cuda", True): (15, 60)}
"""Fewest and most rounds, by device and whether it is a verification.

Many short blocks make the median of their means as narrow in noise as that of the medians of a third as many blocks of
three times the length, which a distribution of work over calls can use (`benchmarks.estimators`).
"""

OFFSET_US = {"cpu": 0.0, "cuda": 0.13}
"""Microseconds (standard deviation) by which two runners of one kernel differ all along.

The difference is the same in all rounds. On an H200 `benchmarks.timing` found 0.13 over 60 pairs of runners, the same
for kernels from 12 to 480 us.
"""

Samples = dict[str, list[float]]
"""Per-block means in microseconds, by contender; position i of every list is round i."""


@dataclass(frozen=True)
class Plan:
    """How long to time one workload, and how many calls to check.

    Rounds at least and at most, and seconds at most; how many of the candidate's calls are checked in full at least;
    the chance that a candidate is not caught which cheats in just as many calls as decide its time; the chance that a
    block of a baseline's has a call checked.
    hopeless_us: a candidate that is timed without baselines, and whose first calls take longer, is timed no further.
    against_wall: on a GPU, whether the device's times are compared with the referee's clock, for which bursts that run
    nothing are timed first. Without it the runner is taken at its word.
    """

    fewest_rounds: int
    most_rounds: int
    time_s: float
    checks: int
    escape: float
    check_baseline: float
    hopeless_us: float = math.inf
    against_wall: bool = True

    def check_chance(self, calls: int) -> float:
        """Return the chance to check each call of the candidate, in blocks of so many on average.

        The chance is the same for every call, whatever was checked before, so noticing a check tells nothing about the
        next one. More than half of the blocks decide a median; who cheats in half of their calls halves it.
        """
        return 1.0 - math.pow(self.escape, 1.0 / (_majority(self.fewest_rounds) * _majority(calls)))

    def burst_chance(self) -> float:
        """Return the chance that one call of a burst, chosen at random, is checked.

        Where half of a burst's calls are cheated, the random call is one of them with as high a chance.
        """
        return min(1.0, 2.0 * (1.0 - math.pow(self.escape, 1.0 / _majority(self.fewest_rounds))))


def _majority(count: int) -> int:
    return count // 2 + 1


def plan_for(verifies: bool, device: str, time_s: float) -> Plan:
    """Return the timing plan of the verify level, or of the screen and baseline levels.

    The latter are enough to rank.

    `time_s` is for one workload; a verification's is stretched threefold. On a GPU a round takes milliseconds, so there
    are enough of them for an interval of a percent.
    """
    fewest, most = _ROUNDS[device, verifies]
    if verifies:
        return Plan(fewest, most, 3 * time_s, 5, 0.01, 0.05)
    return Plan(fewest, most, time_s, 2, 0.25, 0.05)  # what comes far is verified


def calls_per_block(call_us: float) -> int:
    """Return the calls of one block on average, for every contender, from eager's time.

    2 ms worth of calls, between 1 and 10. The candidate has no influence on it.
    """
    return int(min(_MOST_CALLS, max(1, round(2_000 / max(call_us, 1.0)))))


def block_length(calls: int, rng: random.Random) -> int:
    """Return how many calls the next block has, by chance: nobody can tell which call is its last."""
    return rng.randint(math.ceil(0.5 * calls), max(2, math.floor(1.5 * calls)))


def interleave(
    names: Sequence[str], block: Callable[[str], float], *, plan: Plan, candidate: str | None, rng: random.Random
) -> Samples:
    """Time `names` in rounds of blocks.

    `block(name)` runs one block and returns the mean of its calls in microseconds.

    Stops when every baseline's ratio to the candidate is known within CLOSE_ENOUGH, at the plan's most rounds, or at
    its time once the fewest rounds are done; a call so slow that these would take thrice the time ends it after three.
    """
    samples: Samples = {name: [] for name in names}
    start = time.monotonic()
    for done in range(1, plan.most_rounds + 1):
        order = list(names)
        rng.shuffle(order)
        for name in order:
            samples[name].append(block(name))
        spent = time.monotonic() - start
        if done >= plan.fewest_rounds and (spent > plan.time_s or _settled(samples, candidate)):
            break
        if done >= 3 and spent > 3 * plan.time_s:
            break
    return samples


def _settled(samples: Samples, candidate: str | None) -> bool:
    if candidate is None:
        return False
    for name in samples:
        if name != candidate:
            ratio, (low, high) = ratio_with_interval(samples[name], samples[candidate], seed=0)
            if (high - low) / 2 > CLOSE_ENOUGH * ratio:
                return False
    return True


def bootstrap_ratios(
    baseline: Sequence[float], candidate: Sequence[float], seed: int, offset_us: float = 0.0
) -> NDArray[np.float64]:
    """Draw RESAMPLES ratios median(baseline) / median(candidate), rounds with replacement.

    offset_us: standard deviation of the difference between two runners of one kernel that is the same in all rounds and
    that no number of rounds shows; each draw is moved by as much.
    """
    above, below = np.asarray(baseline, dtype=np.float64), np.asarray(candidate, dtype=np.float64)
    if above.shape != below.shape or above.size == 0:
        raise ValueError(f"rounds do not pair: {above.size} and {below.size}")
    chance = np.random.default_rng(seed)
    rounds = chance.integers(0, above.size, size=(RESAMPLES, above.size))
    ratios: NDArray[np.float64] = np.median(above[rounds], axis=1) / np.median(below[rounds], axis=1)
    if offset_us:
        ratios *= np.exp(chance.normal(0.0, offset_us / float(np.median(below)), RESAMPLES))
    return ratios


def ratio_with_interval(
    baseline: Sequence[float], candidate: Sequence[float], seed: int, offset_us: float = 0.0
) -> tuple[float, tuple[float, float]]:
    """Return median(baseline) / median(candidate) and its 95 % interval."""
    ratios = bootstrap_ratios(baseline, candidate, seed, offset_us)
    low, high = (float(value) for value in np.quantile(ratios, [0.025, 0.975]))
    return float(np.median(baseline) / np.median(candidate)), (low, high)


def score(
    workloads: Sequence[tuple[Sequence[float], Sequence[float]]],
    seed: int,
    offset_us: float = 0.0,
    weights: Sequence[float] | None = None,
) -> tuple[float, tuple[float, float]]:
    """Return the geometric mean over workloads of the speed-up, and its 95 % interval.

    A workload: the fastest baseline's samples, and the candidate's samples. weights: above 0, one for each workload;
    None: all the same.
    """
    points = [float(np.median(baseline) / np.median(candidate)) for baseline, candidate in workloads]
    draws = np.stack(
        [
            np.log(bootstrap_ratios(baseline, candidate, seed + n, offset_us))
            for n, (baseline, candidate) in enumerate(workloads)
        ]
    )
    low, high = (
        float(value) for value in np.exp(np.quantile(np.average(draws, axis=0, weights=weights), [0.025, 0.975]))
    )
    return float(np.exp(np.average(np.log(points), weights=weights))), (low, high)


def fastest(samples: Samples, baselines: Sequence[str]) -> str:
    """Return the baseline with the smallest median."""
    return min((name for name in baselines if name in samples), key=lambda name: float(np.median(samples[name])))
