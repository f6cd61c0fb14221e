"""The two clocks of a GPU's timing, held against each other, over contenders that behave as they are told."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from warpsmith.workers.judge.clock import timing
from warpsmith.workers.judge.clock.burst_clock import FEWEST_CALLS, MOST_CALLS, BurstClock
from warpsmith.workers.judge.runner.burst import EMPTY
from warpsmith.workers.judge.runner.runner_handle import Burst, RunnerHandle

FLUSH_US, START_US = 110.0, 60.0


@dataclass
class Simulated:
    """A contender whose calls take `call_us` on the device and `hidden_us` besides, which its events do not show."""

    call_us: float
    hidden_us: float = 0.0
    jitter_us: float = 0.0
    count: int = 8
    filled: dict[int, Any] = field(default_factory=dict)
    bursts: list[list[int]] = field(default_factory=list)
    chance: random.Random = field(default_factory=lambda: random.Random(7))

    @property
    def slots(self) -> list[int]:
        return list(range(self.count))

    def fill(self, slot: int, values: Any) -> None:
        self.filled[slot] = values

    def burst(self, order: Sequence[int], limit_s: float) -> Burst:
        self.bursts.append(list(order))
        calls = [1.2 if slot == EMPTY else self.call_us for slot in order]
        wall = START_US + sum(FLUSH_US + (0.0 if slot == EMPTY else self.call_us + self.hidden_us) for slot in order)
        return Burst(round(1e3 * (wall + self.chance.uniform(0, self.jitter_us))), calls)


def clock(*, draw: Any = None, **contenders: Simulated) -> BurstClock:
    """A calibrated clock over simulated contenders, the first of which sets the length of blocks."""
    made = BurstClock(
        cast("dict[str, RunnerHandle]", contenders), 1.0, draw or (lambda: [torch.zeros(1)]), random.Random(3)
    )
    made.calibrate(next(iter(contenders)))
    return made


@given(st.floats(2.0, 5_000.0), st.floats(2.0, 5_000.0), st.integers(2, 24))
@settings(max_examples=50, deadline=None)
def test_honest_contenders_are_taken_at_their_events(baseline_us: float, candidate_us: float, slots: int) -> None:
    contenders = {
        "eager": Simulated(baseline_us, count=slots, jitter_us=20.0),
        "candidate": Simulated(candidate_us, count=slots, jitter_us=20.0),
    }
    bursts = clock(**contenders)
    samples = {name: [bursts.block(name)[0] for _ in range(7)] for name in contenders}
    assert samples["candidate"] == pytest.approx([candidate_us] * 7)
    assert bursts.corrected(samples, "candidate") == samples
    calls = [sum(len(order) for order in c.bursts if EMPTY not in order) for c in contenders.values()]
    assert FEWEST_CALLS * 7 <= calls[1] <= MOST_CALLS * 7
    assert calls[0] == calls[1] + min(
        FEWEST_CALLS, slots - (1 if slots < 12 else 2)
    )  # the same length for both, by the first one's time


@given(st.floats(2.0, 500.0), st.floats(20.0, 1_000.0))
@settings(max_examples=50, deadline=None)
def test_work_that_only_the_wall_clock_saw_counts_against_the_candidate(call_us: float, hidden_us: float) -> None:
    hidden = max(hidden_us, 0.2 * call_us)
    bursts = clock(
        eager=Simulated(call_us, jitter_us=5.0), candidate=Simulated(call_us, hidden_us=hidden, jitter_us=5.0)
    )
    samples = {name: [bursts.block(name)[0] for _ in range(7)] for name in ("eager", "candidate")}
    corrected = bursts.corrected(samples, "candidate")
    assert corrected["candidate"][0] == pytest.approx(call_us + hidden, abs=5.0)
    assert corrected["eager"] == samples["eager"]
    clocks = bursts.clocks()["candidate"]
    assert clocks["wall"] - clocks["events"] == pytest.approx(hidden, abs=5.0)


def test_a_baseline_is_never_made_slower() -> None:
    bursts = clock(eager=Simulated(50.0, hidden_us=500.0), candidate=Simulated(50.0))
    samples = {name: [bursts.block(name)[0] for _ in range(7)] for name in ("eager", "candidate")}
    assert bursts.corrected(samples, "candidate") == samples


def test_every_call_of_a_burst_has_a_slot_and_values_of_its_own() -> None:
    numbers = iter(range(100_000))
    candidate = Simulated(100.0, count=5)
    bursts = clock(draw=lambda: [torch.tensor(next(numbers))], eager=Simulated(100.0, count=5), candidate=candidate)
    orders = set()
    for _ in range(10):
        _, call = bursts.block("candidate")
        last = candidate.bursts[-1]
        assert call.values is candidate.filled[call.slot]
        assert call.last_slot == last[-1]
        assert call.slot in last
    for order in candidate.bursts:
        if EMPTY not in order:
            assert len(set(order)) == len(order) <= 5
            orders.add(tuple(order))
    assert len(orders) > 5
    values = [int(value[0]) for value in candidate.filled.values()]
    assert len(set(values)) == len(values)


def test_a_host_that_varies_widens_what_is_allowed() -> None:
    quiet, loud = (clock(eager=Simulated(20.0), candidate=Simulated(20.0, jitter_us=jitter)) for jitter in (0.0, 900.0))
    for bursts in (quiet, loud):
        for _ in range(7):
            bursts.block("candidate")
    assert quiet.surplus("candidate") == loud.surplus("candidate") == 0.0


@given(st.floats(5.0, 1_000.0), st.integers(0, 2**32))
@settings(max_examples=30, deadline=None)
def test_an_offset_widens_an_interval_by_its_share_of_the_time(call_us: float, seed: int) -> None:
    samples = [call_us] * 15
    ratio, (low, high) = timing.ratio_with_interval(samples, samples, seed, offset_us=0.13)
    assert ratio == 1.0
    assert (high - low) / 2 == pytest.approx(1.96 * 0.13 / call_us, rel=0.15)
    assert low < 1.0 < high


def test_some_slots_of_every_burst_are_filled_and_not_called() -> None:
    candidate = Simulated(100.0, count=6)
    bursts = clock(eager=Simulated(100.0, count=6), candidate=candidate)
    idle = set()
    for _ in range(20):
        _, call = bursts.block("candidate")
        for slot, values in call.idle:
            assert slot not in candidate.bursts[-1]
            assert values is candidate.filled[slot]
            idle.add(slot)
        assert len(call.idle) == 1
    assert idle == set(range(6))
