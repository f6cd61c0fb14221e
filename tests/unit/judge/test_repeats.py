"""Repeats of a call: always in another slot than the last."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from warpsmith.workers.judge.gates.verification import MOST_BETWEEN, calls_between


@given(st.integers(2, 30), st.integers())
def test_a_repeat_lies_elsewhere(slots: int, seed: int) -> None:
    between = calls_between(slots, random.Random(seed))
    assert 0 <= between <= MOST_BETWEEN
    assert (between + 1) % slots != 0


def test_every_number_that_leads_elsewhere_is_drawn() -> None:
    rng = random.Random(0)
    drawn = {slots: {calls_between(slots, rng) for _ in range(200)} for slots in (2, 3, 12)}
    assert drawn == {2: {0, 2}, 3: {0, 1, 3}, 12: {0, 1, 2, 3}}
