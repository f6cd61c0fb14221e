"""Smaller arguments for a task, and the sizes of results that smaller calls show."""

from __future__ import annotations

import math
from typing import Any

import pytest

pytest.importorskip("torch", reason="beside the analysis, which needs it")

from warpsmith.workers.judge.analysis.task_sizes import inferred, kind, sizes_of, smaller_calls

FOREVER = math.inf


def workload(*shapes: tuple[int, ...], outputs: tuple[tuple[int, ...], ...] = ()) -> dict[str, Any]:
    def leaves(of: tuple[tuple[int, ...], ...]) -> list[dict[str, Any]]:
        return [{"shape": list(shape), "dtype": "float32"} for shape in of]

    structure = {"tuple": [{"leaf": number} for number in range(len(shapes))]}
    told = {"result": {"leaf": 0}, "written": [], "unread": [], "aliases": [None] * len(outputs)}
    return {"structure": structure, "inputs": leaves(shapes), "outputs": leaves(outputs), **told}


def test_sizes_fall_together_each_to_another_one() -> None:
    arguments = {"m": 128, "n": 128, "k": 7 * 64, "flag": True, "name": "a", "seed": 9000}
    found = smaller_calls(arguments, sizes_of(arguments), lambda given: workload(), FOREVER)
    first, second = next(found)[0], next(found)[0]
    assert first == arguments | {"m": 4, "n": 8, "k": 7}
    assert second == arguments | {"m": 8, "n": 16, "k": 14}


def test_sizes_that_must_be_equal_stay_equal() -> None:
    arguments = {"m": 128, "n": 128}

    def call(given: dict[str, Any]) -> dict[str, Any] | None:
        return workload() if given["m"] == given["n"] and given["m"] % 16 == 0 else None

    shown = [given for given, _ in smaller_calls(arguments, sizes_of(arguments), call, FOREVER)]
    assert shown == [{"m": 16, "n": 16}, {"m": 32, "n": 32}, {"m": 64, "n": 64}]


def test_nothing_is_tried_once_the_time_is_over() -> None:
    assert list(smaller_calls({"m": 128}, {"m": 128}, lambda given: workload(), end=0.0)) == []


def test_a_result_has_the_size_of_the_one_input_that_agrees_in_every_call() -> None:
    data = workload((100, 30), (30, 50))
    shown = [
        ({}, workload((4, 7), (7, 9), outputs=((4, 9, 3),))),
        ({}, workload((8, 7), (7, 10), outputs=((8, 10, 3),))),
    ]
    found = inferred(data, iter(shown))
    assert found is not None
    assert [item["shape"] for item in found["outputs"]] == [[100, 50, 3]]
    assert kind(found) == kind(data)


@pytest.mark.parametrize(
    "second",
    [
        workload((8, 7), (7, 10), outputs=((8, 11),)),  # 9, then 11: no input does so
        workload((8, 7), (7, 10), outputs=((8,),)),  # of another rank
        workload((8, 7), outputs=((8, 10),)),  # of another kind of data
    ],
)
def test_a_size_that_is_left_open_is_none(second: dict[str, Any]) -> None:
    first = workload((4, 7), (7, 9), outputs=((4, 9),))
    assert inferred(workload((100, 30), (30, 50)), iter([({}, first), ({}, second)])) is None
    assert inferred(workload((100, 30), (30, 50)), iter([({}, first)])) is None


def test_inputs_that_agree_in_small_calls_and_not_at_the_tasks_own_sizes_leave_it_open() -> None:
    shown = [({}, workload((4,), (4,), outputs=((4,),))), ({}, workload((8,), (8,), outputs=((8,),)))]
    assert inferred(workload((100,), (50,)), iter(shown)) is None
    assert inferred(workload((100,), (100,)), iter(shown)) is not None
