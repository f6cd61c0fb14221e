"""The estimate of the judge is as narrow as a median of medians, and no distribution of work gains by it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from benchmarks.estimators import MACHINES, Noise, simulate

TRIALS = 30
BEFORE, NOW = "median of block medians", "median of block means"


def as_before(machine: Noise) -> Noise:
    """A CPU's calls in a third as many blocks."""
    fewer = 1 if machine.device == "cuda" else 3
    return replace(machine, rounds=machine.rounds // fewer, calls=machine.calls * fewer)


@pytest.mark.parametrize("machine", MACHINES, ids=lambda machine: machine.name)
def test_intervals_are_no_wider_and_cheats_gain_nothing(machine: Noise) -> None:
    before, now = simulate(as_before(machine), BEFORE, TRIALS, 1), simulate(machine, NOW, TRIALS, 1)
    assert now["half_width"] <= 1.1 * before["half_width"]
    assert now["holds"] >= 0.85
    assert before["last_call"] > 5
    assert before["few_blocks"] > 5
    assert now["last_call"] < 1.1
    assert now["few_blocks"] < 1.1
