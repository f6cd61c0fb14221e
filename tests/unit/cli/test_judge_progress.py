"""The line on a terminal that says where the judge is."""

from __future__ import annotations

import io
from typing import Any, get_args

import pytest
from rich.console import Console

from warpsmith.kernels_db.job.documents import Gate, Progress
from warpsmith.service.cli.judge_progress import MEANINGS, STARTS, describe, show_progress


def where(**changes: Any) -> Progress:
    return {"gate": "time", "workload": "large", "number": 2, "total": 5, **changes}  # type: ignore[typeddict-item]


@pytest.mark.parametrize(
    ("place", "said"),
    [
        (where(), "timing: large (2 of 5 workloads)"),
        (where(workload=None), "timing: a hold-out (2 of 5 workloads)"),
        (where(gate="compile", workload=None, number=0, total=0), "compiling"),
        (where(workload="\x1b[31mred"), "timing: [31mred (2 of 5 workloads)"),
    ],
)
def test_a_place_is_said_in_words(place: Progress, said: str) -> None:
    assert describe(place) == said


def test_every_gate_has_words() -> None:
    assert MEANINGS.keys() == set(get_args(Gate))


def test_a_terminal_shows_where_the_job_is_and_for_how_long() -> None:
    seconds = iter(range(1000))
    output = io.StringIO()
    with show_progress(Console(file=output, force_terminal=True, width=80), lambda: next(seconds)) as take:
        assert take is not None
        take(where())
    assert STARTS in output.getvalue()
    assert "timing: large (2 of 5 workloads)" in output.getvalue()


def test_nothing_is_shown_where_there_is_no_terminal() -> None:
    output = io.StringIO()
    with show_progress(Console(file=output)) as take:
        assert take is None
    assert output.getvalue() == ""
