"""Rounds of timing: the fewest where they do, all where they do not, and nobody asks twice."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from warpsmith.workers.optimize.compiled.turns import FEWEST_ROUNDS, MOST_ROUNDS, time_in_turns


@pytest.mark.parametrize(("told", "rounds"), [(True, FEWEST_ROUNDS), (False, MOST_ROUNDS)])
def test_it_is_asked_once_whether_the_fewest_rounds_will_do(told: bool, rounds: int) -> None:
    asked: list[int] = []

    def clear(samples: dict[str, list[float]]) -> bool:
        asked.extend({len(each) for each in samples.values()})
        return told

    variants: dict[str, Any] = {name: lambda: lambda: None for name in ("one", "other")}
    samples = time_in_turns(variants, torch.device("cpu"), 1e6, clear)
    assert asked == [FEWEST_ROUNDS]
    assert {name: len(each) for name, each in samples.items()} == {"one": rounds, "other": rounds}


def test_without_such_a_question_all_rounds_are_made() -> None:
    variants: dict[str, Any] = {name: lambda: lambda: None for name in ("one", "other")}
    assert len(time_in_turns(variants, torch.device("cpu"), 1e6)["one"]) == MOST_ROUNDS
