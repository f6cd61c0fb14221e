"""Which estimate of a kernel's time is narrow in noise and leaves a cheat nothing to gain: a simulation, no device.

`python -m benchmarks.estimators [--trials 200] [--seed 1]`

Two contenders take turns in blocks, as in a verification. Calls vary by themselves; the machine drifts from round to
round, which strikes both alike; neighbours strike single calls and whole blocks of one of them. For each estimate:
the half-width of the interval of a kernel against itself, how often that holds 1.0, how often a kernel that is 2 %
slower is found, and how fast two cheats seem that take as long as an honest kernel in all: one does the work of a block
in its last call, one does all of its work in two fifths of the blocks.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from warpsmith.workers.judge.clock import timing
from warpsmith.workers.judge.clock.deferral import Ledger

Calls = NDArray[np.float64]
"""Microseconds of the calls of one contender: rounds by calls of a block."""

PLANTED = 0.02
HEAVY = 0.4
"""The share of blocks in which a cheat does all of its work."""


@dataclass(frozen=True)
class Noise:
    """A machine: how many rounds and calls, and what strikes them.

    own, drift: relative deviations of calls, and of rounds. spike, burst: chances that a neighbour strikes a call, and
    all of a block; each then takes up to `strength` times as long.
    """

    name: str
    device: str
    rounds: int
    calls: int
    own: float
    drift: float
    spike: float
    burst: float
    strength: float

    def draw(self, chance: np.random.Generator, drift: Calls) -> Calls:
        """Return the calls of a contender that takes 100 us."""
        shape = (self.rounds, self.calls)
        calls = 100.0 * np.exp(chance.normal(0.0, self.own, shape)) * drift
        calls *= np.where(chance.random(shape) < self.spike, chance.uniform(1.1, self.strength, shape), 1.0)
        struck = chance.random((self.rounds, 1)) < self.burst
        made: Calls = calls * np.where(struck, chance.uniform(1.1, self.strength / 2, (self.rounds, 1)), 1.0)
        return made


MACHINES = [
    Noise("GPU of its own", "cuda", 15, 12, 0.008, 0.004, 0.002, 0.005, 3.0),
    Noise("CPU, quiet", "cpu", 30, 4, 0.04, 0.03, 0.01, 0.02, 3.0),
    Noise("CPU, neighbours", "cpu", 30, 4, 0.06, 0.08, 0.03, 0.10, 4.0),
]


def median_of_medians(calls: Calls) -> list[float]:
    """Take the median of each block, as the judge did before."""
    found: list[float] = np.median(calls, axis=1).tolist()
    return found


def median_of_means(calls: Calls) -> list[float]:
    """Take the mean of each block, as the judge does."""
    found: list[float] = calls.mean(axis=1).tolist()
    return found


def mean_of_all(calls: Calls) -> list[float]:
    """Take the mean of all calls: the median of equal numbers is that number."""
    return [float(calls.mean())] * len(calls)


ESTIMATES: dict[str, Callable[[Calls], list[float]]] = {
    "median of block medians": median_of_medians,
    "median of block means": median_of_means,
    "mean of all calls": mean_of_all,
}


def mean_ratio(baseline: Calls, candidate: Calls, seed: int) -> tuple[float, float, float]:
    """Return the ratio of means and its interval, over rounds drawn with replacement."""
    chance = np.random.default_rng(seed)
    drawn = chance.integers(0, len(baseline), (timing.RESAMPLES, len(baseline)))
    above, below = baseline.mean(axis=1), candidate.mean(axis=1)
    low, high = np.quantile(above[drawn].mean(axis=1) / below[drawn].mean(axis=1), [0.025, 0.975])
    return float(above.mean() / below.mean()), float(low), float(high)


def ratio(estimate: str, device: str, baseline: Calls, candidate: Calls, seed: int) -> tuple[float, float, float]:
    """Return the candidate's speed-up with its interval, what it deferred included where the judge counts that."""
    if estimate == "mean of all calls":
        return mean_ratio(baseline, candidate, seed)
    samples = {"baseline": ESTIMATES[estimate](baseline), "candidate": ESTIMATES[estimate](candidate)}
    if estimate == "median of block means":
        ledger = Ledger()
        for name, calls in (("baseline", baseline), ("candidate", candidate)):
            ledger.add(name, float(calls.sum()), calls.size)
        deferred = ledger.deferred_us(samples, "candidate", device)
        samples["candidate"] = [value + deferred for value in samples["candidate"]]
    found, (low, high) = timing.ratio_with_interval(samples["baseline"], samples["candidate"], seed)
    return found, low, high


def in_the_last_call(calls: Calls) -> Calls:
    """Move all but a tenth of a block's work to its last call."""
    moved = calls * 0.1
    moved[:, -1] += 0.9 * calls.sum(axis=1)
    return moved


def in_few_blocks(calls: Calls) -> Calls:
    """Move all but a tenth of the work to HEAVY of the blocks."""
    heavy = int(HEAVY * len(calls))
    moved = calls * 0.1
    moved[:heavy] += 0.9 * calls.sum() / heavy / calls.shape[1]
    return moved


def simulate(machine: Noise, estimate: str, trials: int, seed: int) -> dict[str, Any]:
    """Return the figures of an estimate on a machine."""
    chance = np.random.default_rng(seed)
    halves, holds, found, last, few = [], 0, 0, [], []
    for trial in range(trials):
        drift = np.exp(chance.normal(0.0, machine.drift, (machine.rounds, 1)))
        one, other = machine.draw(chance, drift), machine.draw(chance, drift)
        middle, low, high = ratio(estimate, machine.device, one, other, trial)
        halves.append((high - low) / 2 / middle)
        holds += low <= 1.0 <= high
        found += ratio(estimate, machine.device, one, other * (1 + PLANTED), trial)[2] < 1.0
        last.append(ratio(estimate, machine.device, one, in_the_last_call(other), trial)[0])
        few.append(ratio(estimate, machine.device, one, in_few_blocks(other), trial)[0])
    return {
        "half_width": statistics.median(halves),
        "half_width_95": float(np.quantile(halves, 0.95)),
        "holds": holds / trials,
        "found": found / trials,
        "last_call": statistics.median(last),
        "few_blocks": statistics.median(few),
    }


def main() -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.estimators", description=__doc__)
    parser.add_argument("--trials", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    print(f"{'':44} {'half-width':>10} {'95th':>7} {'A/A':>6} {'2 %':>6} {'last call':>10} {'few blocks':>11}")
    for machine in MACHINES:
        for estimate in ESTIMATES:
            one = simulate(machine, estimate, options.trials, options.seed)
            print(
                f"{machine.name:18} {estimate:25} {one['half_width']:10.2%} {one['half_width_95']:7.2%} "
                f"{one['holds']:6.1%} {one['found']:6.1%} {one['last_call']:9.2f}x {one['few_blocks']:10.2f}x"
            )
    return 0


if __name__ == "__main__":
    sys.exit(main())
