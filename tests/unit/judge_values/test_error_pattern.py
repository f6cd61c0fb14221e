"""What wrong elements have in common, told for whoever has to find the defect."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from warpsmith.kernels_db.job.documents import Failure
from warpsmith.workers.judge.values.compare import Tolerance, compare_floats, wrong_elements
from warpsmith.workers.judge.values.error_pattern import SHOWN, along, described

LIMIT = Tolerance(0.0, 1e-3, torch.empty(0, dtype=torch.float64), torch.tensor([1e-4], dtype=torch.float64))
BEFORE: Failure = {"kind": "wrong_value", "message": "wrong"}
EXPECTED = torch.arange(1.0, 1 + 32 * 96, dtype=torch.float64).view(32, 96)


def told(change: Callable[[torch.Tensor], object]) -> Failure:
    found = EXPECTED.to(torch.float32)
    change(found)
    return described(BEFORE, found, EXPECTED, LIMIT)


def zero(*places: int | slice) -> Callable[[torch.Tensor], object]:
    def change(found: torch.Tensor) -> None:
        found[places] = 0.0

    return change


@pytest.mark.parametrize(
    ("change", "pattern"),
    [
        (zero(slice(None), slice(88, None)), "axis 1 (size 96): only the last 8, from 88 on; each of them is 0"),
        (zero(slice(0, 4)), "axis 0 (size 32): only the first 4; each of them is 0"),
        (zero(7), "axis 0 (size 32): only at 7; each of them is 0"),
        (zero(slice(None), slice(3, None, 16)), "axis 1 (size 96): only every 16th, from 3 on; each of them is 0"),
        (zero(slice(4, 9)), "axis 0 (size 32): only from 4 to 8; each of them is 0"),
        (zero(31, 95), "axis 0 (size 32): only at 31; axis 1 (size 96): only at 95; each of them is 0"),
        (lambda found: found.mul_(0.5), "every element is wrong; each is about 0.5 times the expected value"),
        (lambda found: found.fill_(float("nan")), "every element is wrong; each of them is NaN"),
        (lambda found: found.add_(torch.eye(32, 96)), "wrong elements lie all over the tensor"),
    ],
)
def test_places_and_values_are_told(change: Callable[[torch.Tensor], object], pattern: str) -> None:
    if "all over" in pattern:
        assert told(change)["pattern"].startswith("axis 1 (size 96): only the first 32")
    else:
        assert told(change)["pattern"] == pattern


def test_the_worst_are_shown_with_their_places() -> None:
    found = told(lambda tensor: tensor[5].sub_(torch.arange(96.0)))["samples"]
    assert len(found) == SHOWN
    assert found[0] == {"index": [5, 95], "expected": 576.0, "found": 481.0}
    assert [element["index"] for element in found] == [[5, 95], [5, 94], [5, 93], [5, 92]]


def test_what_is_right_element_by_element_has_no_pattern() -> None:
    assert told(lambda found: None) == BEFORE


def test_integers_are_compared_as_they_are() -> None:
    expected = torch.arange(12).view(3, 4)
    found = expected.clone()
    found[:, 3] = -1
    failure = described(BEFORE, found, expected, None)
    assert failure["pattern"] == "axis 1 (size 4): only at 3"
    assert failure["samples"][0] == {"index": [2, 3], "expected": 11, "found": -1}
    flags = torch.tensor([True, False])
    assert described(BEFORE, ~flags, flags, None)["pattern"] == "every element is wrong"


@given(st.lists(st.floats(-4, 4), min_size=6, max_size=6), st.sampled_from([float("nan"), float("inf"), 9.0, 0.0]))
def test_the_mask_counts_what_the_comparison_counts(values: list[float], odd: float) -> None:
    expected = torch.tensor([*values, 1.0, 2.0], dtype=torch.float64)
    found = expected.to(torch.float32)
    found[2], found[5] = odd, odd
    assert int(wrong_elements(found, expected, LIMIT).sum()) == compare_floats(found, expected, LIMIT).wrong_elements


@given(st.sets(st.integers(0, 40), min_size=1), st.just(41))
def test_a_statement_about_an_axis_is_true(places: set[int], size: int) -> None:
    positions = sorted(places)
    said = along(torch.tensor(positions), size)
    if len(positions) == size:
        assert said is None
    if said is not None and "every" in said:
        step = int(said.split("every ")[1].split("th")[0])
        assert positions == list(range(positions[0], positions[-1] + 1, step))
    if said is not None and "last" in said:
        assert positions == list(range(size - len(positions), size))
