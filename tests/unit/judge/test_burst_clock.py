"""The two clocks of a GPU's timing, held against each other, over contenders that behave as they are told."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from warpsmith.workers.judge.clock import timing
from warpsmith.workers.judge.clock.burst_clock import FEWEST_CALLS, MOST_CALLS, BurstClock, Call
from warpsmith.workers.judge.machine import buffers
from warpsmith.workers.judge.machine.buffers import TensorSpec
from warpsmith.workers.judge.runner import digest
from warpsmith.workers.judge.runner.burst import EMPTY
from warpsmith.workers.judge.runner.digest import Digester, Seal
from warpsmith.workers.judge.runner.runner_handle import Burst, RunnerHandle

CPU = torch.device("cpu")


@pytest.fixture(scope="module", autouse=True)
def small_digests() -> Iterator[None]:
    """Scratch for the few words of a simulated result."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(digest, "MOST_WORDS", 64)
        yield


FLUSH_US, START_US = 110.0, 60.0


@dataclass
class Simulated:
    """A contender whose calls take `call_us` on the device and `hidden_us` besides, which its events do not show.

    The last call of each burst takes `last_us` more, the first burst `first_us` and the fourth `held_up_us`; `late`: a
    call's results are written after it has ended; `behind`: so many calls are launched late, of a burst with a number
    below `until`.
    """

    call_us: float
    hidden_us: float = 0.0
    jitter_us: float = 0.0
    last_us: float = 0.0
    first_us: float = 0.0
    held_up_us: float = 0.0
    late: bool = False
    behind: int = 0
    until: int = 1000
    count: int = 8
    filled: dict[int, Any] = field(default_factory=dict)
    bursts: list[list[int]] = field(default_factory=list)
    sealed: list[int] = field(default_factory=list)
    chance: random.Random = field(default_factory=lambda: random.Random(7))

    def __post_init__(self) -> None:
        self.slots = buffers.allocate([TensorSpec("y", (8,), (1,), torch.float32)], self.count, CPU)

    def __del__(self) -> None:
        buffers.release(self.slots)

    def fill(self, slot: int, values: Any) -> None:
        self.filled[slot] = values

    def burst(self, order: Sequence[int], seal: Seal, limit_s: float) -> Burst:
        self.bursts.append(list(order))
        self.sealed.append(order[seal.fixed])
        calls = [1.2 if slot == EMPTY else self.call_us for slot in order]
        if self.last_us and EMPTY not in order:
            calls[-1] += self.last_us
        place = 0 if order[seal.fixed] == EMPTY else order[seal.fixed]
        taken = int(Digester(CPU).take(self.slots[place].arena, seal).item())
        if self.late and order[seal.fixed] != EMPTY:
            self.slots[place].arena.add_(1)
        late = self.behind if len(self.bursts) < self.until else 0
        wall = START_US + sum(FLUSH_US + (0.0 if slot == EMPTY else self.call_us + self.hidden_us) for slot in order)
        wall += {1: self.first_us, 4: self.held_up_us}.get(len(self.bursts), 0.0)
        return Burst(round(1e3 * (wall + self.chance.uniform(0, self.jitter_us))), calls, late, taken)


def clock(*, draw: Any = None, **contenders: Simulated) -> BurstClock:
    """A calibrated clock over simulated contenders, the first of which sets the length of blocks."""
    made = BurstClock(
        cast("dict[str, RunnerHandle]", contenders), 1.0, draw or (lambda: [torch.zeros(1)]), random.Random(3), [0]
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
    samples = {name: [bursts.block(name) for _ in range(7)] for name in contenders}
    assert samples["candidate"] == pytest.approx([candidate_us] * 7)
    assert bursts.corrected(samples, {"candidate"}) == samples
    calls = [sum(len(order) for order in c.bursts if EMPTY not in order) for c in contenders.values()]
    once = min(FEWEST_CALLS, slots - (1 if slots < 12 else 2))  # in the calibration
    assert all(FEWEST_CALLS * 7 <= count - once <= MOST_CALLS * 7 for count in calls)
    average = min(MOST_CALLS, max(FEWEST_CALLS, 2000 / baseline_us))  # by the first one's time, for both
    assert all(0.7 * average <= (count - once) / 7 <= 1.3 * average + 1 for count in calls)


@given(st.floats(2.0, 500.0), st.floats(20.0, 1_000.0))
@settings(max_examples=50, deadline=None)
def test_work_that_only_the_wall_clock_saw_counts_against_the_candidate(call_us: float, hidden_us: float) -> None:
    hidden = max(hidden_us, 0.2 * call_us)
    bursts = clock(
        eager=Simulated(call_us, jitter_us=5.0), candidate=Simulated(call_us, hidden_us=hidden, jitter_us=5.0)
    )
    samples = {name: [bursts.block(name) for _ in range(7)] for name in ("eager", "candidate")}
    corrected = bursts.corrected(samples, {"candidate"})
    assert corrected["candidate"][0] == pytest.approx(call_us + hidden, abs=5.0)
    assert corrected["eager"] == samples["eager"]
    clocks = bursts.clocks()["candidate"]
    assert clocks["wall"] - clocks["events"] == pytest.approx(hidden, abs=5.0)


def test_without_the_wall_events_are_believed_and_nothing_runs_empty() -> None:
    hides = Simulated(50.0, hidden_us=500.0, jitter_us=5.0)
    contenders = cast("dict[str, RunnerHandle]", {"candidate": hides})
    bursts = BurstClock(contenders, 1.0, lambda: [torch.zeros(1)], random.Random(3), [0])
    assert bursts.calibrate("candidate", against_wall=False) is None
    assert bursts.first_us == 50.0
    samples = {"candidate": [bursts.block("candidate") for _ in range(3)]}
    assert bursts.corrected(samples, {"candidate"}) == samples == {"candidate": [50.0] * 3}
    assert bursts.clocks() == {}
    assert all(EMPTY not in order for order in hides.bursts)


def test_first_calls_that_were_launched_late_say_nothing_of_the_kernel() -> None:
    assert clock(candidate=Simulated(50.0)).first_us == 50.0
    assert clock(candidate=Simulated(50.0, behind=1, until=2)).first_us is None


def test_an_expert_that_leaves_work_on_another_stream_is_timed_with_it_and_an_honest_one_as_before() -> None:
    contenders = {
        "eager": Simulated(100.0, jitter_us=5.0),
        "aside": Simulated(4.0, hidden_us=90.0, jitter_us=5.0),
        "liger": Simulated(60.0, jitter_us=5.0),
    }
    bursts = clock(**contenders)
    samples = {name: [bursts.block(name) for _ in range(7)] for name in contenders}
    corrected = bursts.corrected(samples, {"candidate", "aside", "liger"})
    assert corrected["aside"] == pytest.approx([94.0] * 7, abs=5.0)
    assert {name: corrected[name] for name in ("eager", "liger")} == {
        name: samples[name] for name in ("eager", "liger")
    }


@pytest.mark.parametrize("slow", [{"first_us": 4_000.0}, {"held_up_us": 4_000.0}, {"first_us": 4e3, "held_up_us": 4e3}])
def test_a_slow_burst_while_calibrating_excuses_no_hidden_work(slow: dict[str, float]) -> None:
    aside = Simulated(2.0, hidden_us=130.0, jitter_us=5.0, count=24, **slow)
    bursts = clock(eager=Simulated(136.0, jitter_us=5.0, count=24), aside=aside)
    for _ in range(7):
        bursts.block("aside")
    assert bursts.surplus("aside") == pytest.approx(130.0, abs=5.0)


def test_a_baseline_of_pytorchs_is_never_made_slower() -> None:
    bursts = clock(eager=Simulated(50.0, hidden_us=500.0), candidate=Simulated(50.0))
    samples = {name: [bursts.block(name) for _ in range(7)] for name in ("eager", "candidate")}
    assert bursts.corrected(samples, {"candidate"}) == samples


def test_every_call_of_a_burst_has_a_slot_and_values_of_its_own() -> None:
    numbers = iter(range(100_000))
    candidate = Simulated(100.0, count=5)
    bursts = clock(draw=lambda: [torch.tensor(next(numbers))], eager=Simulated(100.0, count=5), candidate=candidate)
    orders = set()

    def look(call: Call) -> None:
        last = candidate.bursts[-1]
        assert candidate.sealed[-1] == call.slot
        assert call.values is candidate.filled[call.slot]
        assert call.last_slot == last[-1]
        assert call.slot in last

    for _ in range(10):
        bursts.block("candidate", look)
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

    def look(call: Call) -> None:
        for slot, values in call.idle:
            assert slot not in candidate.bursts[-1]
            assert values is candidate.filled[slot]
            idle.add(slot)
        assert len(call.idle) == 1

    for _ in range(20):
        bursts.block("candidate", look)
    assert idle == set(range(6))


def test_what_is_done_in_the_last_call_of_a_burst_is_on_the_blocks_time() -> None:
    contenders = {"eager": Simulated(100.0), "candidate": Simulated(10.0, last_us=90.0 * 6)}
    bursts = clock(**contenders)
    for _ in range(20):
        before = len(contenders["candidate"].bursts)
        value = bursts.block("candidate")
        parts = contenders["candidate"].bursts[before:]
        assert value == pytest.approx(10.0 + 90.0 * 6 * len(parts) / sum(map(len, parts)))
    lengths = [len(order) for order in contenders["candidate"].bursts if EMPTY not in order]
    assert len(set(lengths)) > 2


def test_results_that_are_written_after_their_call_are_seen() -> None:
    bursts = clock(eager=Simulated(100.0), candidate=Simulated(100.0, late=True), honest=Simulated(100.0))
    for name in ("candidate", "honest"):
        looked_at: list[Call] = []
        bursts.block(name, looked_at.append)
        assert [call.kept for call in looked_at] == [name == "honest"]


def test_calls_that_are_launched_late_are_counted_by_contender() -> None:
    contenders = {
        "eager": Simulated(100.0, count=32, behind=3),
        "compile": Simulated(100.0, count=32, behind=2, until=15),  # three blocks after calibration's eleven
        "candidate": Simulated(100.0, count=32),
    }
    bursts = clock(**contenders)
    for name in contenders:
        for _ in range(7):
            bursts.block(name)
    assert bursts.late_calls() == {"eager": 3 * 7, "compile": 2 * 3}
    assert bursts.late_blocks() == {"eager": 1.0, "compile": pytest.approx(3 / 7), "candidate": 0.0}
