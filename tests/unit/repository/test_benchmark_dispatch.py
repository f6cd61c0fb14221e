"""What `python -m benchmarks.dispatch` prints of what packages measured of themselves."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from benchmarks import dispatch

PACKAGES = {"one": 1, "three": 3, "none": 0}
"""Launches of the plan of each."""


def measured(project: Path, *, graphs: bool = True) -> dict[str, Any]:
    """The document of a package whose plan is a CUDA graph where it may be, in place of a process's."""
    launches = PACKAGES[project.name]
    op = 9.6 if graphs and launches > 1 else 19.04
    return {
        "op": project.name,
        "language": "cuda",
        "target": "cuda:sm_90",
        "planned": launches,
        "graphs_asked": graphs,
        "graphs": 400 if graphs and launches > 1 else 0,
        "microseconds": {"raw": 14.0, "op": op, "op_unwatched": op, "add": 4.0, "overhead": op - 14, "ratio": op / 4},
        "singly": {"op": {"p10": op - 1, "p50": op, "p90": op + 1, "p99": 80.0}},
    }


def printed(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *options: str) -> list[list[str]]:
    monkeypatch.setattr(dispatch, "measured", measured)
    monkeypatch.setattr("sys.argv", ["dispatch", *PACKAGES, *options])
    assert dispatch.main() == 0
    return [line.split() for line in capsys.readouterr().out.splitlines() if line]


def test_each_package_has_a_row_and_its_spread(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = printed(monkeypatch, capsys)
    assert [line[3:7] for line in lines[1:5]] == [
        ["planned", "graphs", "raw", "op"],
        ["1", "no", "14.0", "19.0"],
        ["3", "yes", "14.0", "9.6"],
        ["-", "no", "14.0", "19.0"],
    ]
    assert lines[6][5:] == ["of", "p10", "p50", "p90", "p99"]
    assert lines[7][3:] == ["1", "no", "op", "18.0", "19.0", "20.0", "80.0"]


def test_graphs_are_measured_beside_single_launches(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = printed(monkeypatch, capsys, "--graphs")
    assert [(line[0], line[4], line[6]) for line in lines[2:8]] == [
        ("one", "-", "19.0"),
        ("one", "no", "19.0"),
        ("three", "-", "19.0"),
        ("three", "yes", "9.6"),
        ("none", "-", "19.0"),
        ("none", "no", "19.0"),
    ]
