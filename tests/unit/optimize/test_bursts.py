"""Times of a model's parts beside others on the host. All times are given: no clock is read."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("torch", reason="what is timed is torch's, which is not installed")

import torch

from warpsmith.workers.judge.machine import host
from warpsmith.workers.optimize import alone
from warpsmith.workers.optimize.bursts import AGAIN, SURELY, TURNS, Burst, Doubt, find_doubts, noting_others, time_again
from warpsmith.workers.optimize.compiled import turns

PART, WHOLE = 0, 1
WHOLES = {PART: [WHOLE], WHOLE: []}
MODEL_US = 100.0


class Timed:
    """A part whose bursts take these times, the last of them from then on; counts them."""

    def __init__(self, *times: float) -> None:
        self._times, self.count = list(times), 0

    def __call__(self) -> float:
        self.count += 1
        return self._times.pop(0) if len(self._times) > 1 else self._times[0]


def timed(part: Timed, whole: Timed) -> tuple[dict[int, float], list[Doubt]]:
    given: dict[int, Burst] = {PART: part, WHOLE: whole}
    found = {number: burst() for number, burst in given.items()}
    return found, time_again(found, given, WHOLES, MODEL_US)


def test_the_shortest_burst_counts() -> None:
    found, doubts = timed(Timed(24_000.0, 20.0, 25_000.0), Timed(75.0, 70.0, 63_000.0))
    assert (found, doubts) == ({PART: 20.0, WHOLE: 70.0}, [])


def test_a_part_that_takes_longer_than_its_whole_is_timed_again_until_it_does_not() -> None:
    part, whole = Timed(*[24_000.0] * (1 + TURNS), 23_000.0, 20.0), Timed(75.0)
    assert timed(part, whole) == ({PART: 20.0, WHOLE: 75.0}, [])
    assert (part.count, whole.count) == (1 + TURNS + 2, 1 + TURNS)


def test_it_is_timed_again_so_often_and_no_more() -> None:
    part, whole = Timed(24_000.0), Timed(75.0)
    assert timed(part, whole) == ({PART: 24_000.0, WHOLE: 75.0}, [Doubt(PART, WHOLE, 75.0)])
    assert (part.count, whole.count) == (1 + TURNS + AGAIN, 1 + TURNS)


def test_the_shortest_whole_is_named_and_the_model_is_one() -> None:
    assert find_doubts({0: 900.0, 1: 80.0, 2: 70.0}, {0: [1, 2], 1: [], 2: []}, 100.0) == [Doubt(0, 2, 70.0)]
    assert find_doubts({0: 900.0, 1: 150.0}, {0: [1], 1: []}, 100.0) == [Doubt(0, None, 100.0)]
    assert find_doubts({0: 900.0}, {0: [1]}, 100.0) == [Doubt(0, None, 100.0)], "a whole that was not timed is none"


def test_a_part_may_take_somewhat_longer_alone_than_within_its_whole() -> None:
    assert find_doubts({PART: SURELY * 20.0, WHOLE: 20.0}, WHOLES, MODEL_US) == []


@pytest.mark.parametrize(("device", "shares"), [("cpu", [0.5]), ("cuda", [])])
def test_what_others_took_of_a_processor_is_noted(
    device: str, shares: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    readings: Iterator[host.Usage] = iter([host.Usage(1000, 500, 100), host.Usage(1200, 650, 150)])
    monkeypatch.setattr(host, "usage", lambda: next(readings))
    found: list[float] = []
    with noting_others(found, device):
        pass
    assert found == shares


def test_the_note_is_the_judges() -> None:
    assert host.busy_note(0.88) == "other processes took 88% of this host's processor time during the timing"
    assert host.busy_note(host.BUSY) is None


def test_the_shortest_call_of_the_model_and_round_of_a_region_count(monkeypatch: pytest.MonkeyPatch) -> None:
    times = iter([85_000.0, 70.0, *[63_000.0] * turns.MOST_ROUNDS])
    monkeypatch.setattr(turns, "_once", lambda call, device: next(times))
    assert turns.time_each(lambda: None, torch.device("cpu"), lambda: None, 0.0) == 70.0
    monkeypatch.setattr(alone, "cut_out", lambda *given: None)
    compiler = SimpleNamespace(outside=nullcontext, compile_graph=lambda *given: None)
    monkeypatch.setattr(alone, "inductor", compiler)
    monkeypatch.setattr(alone, "time_in_turns", lambda *given: {"inductor": [24_000.0, 20.0, 21.0]})
    region: Any = SimpleNamespace(inputs=(), nodes=(), outputs=())
    assert alone.ready(region, [torch.zeros(1)])() == 20.0
