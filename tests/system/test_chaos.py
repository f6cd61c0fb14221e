"""`python -m benchmarks.chaos` for half a minute on each broker, and how it tells two trees apart."""

from __future__ import annotations

import tempfile
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.chaos.__main__ import BROKERS, measure
from benchmarks.chaos.searches import Found, Node, differences, kinds

NODE = Node(("/0", "fuse/0"), "judged", "accepted", "time", 2.0, 0, "d" * 64, "passed")
QUIET = Found("finished", "1 rounds were played", Counter([NODE]), 1, 2, ())


def test_trees_are_held_against_each_other_node_for_node() -> None:
    assert differences(QUIET, QUIET) == []
    changed = replace(QUIET, nodes=Counter([NODE._replace(verdict="rejected")]))
    assert [line.partition(":")[0] for line in differences(QUIET, changed)] == ["lost", "not of the quiet run"]
    twice = replace(QUIET, nodes=Counter([NODE, NODE]), candidates=2)
    assert [line.partition(":")[0] for line in differences(QUIET, twice)] == ["candidates", "not of the quiet run"]


def test_recorded_searches_are_there() -> None:
    assert len({kind.name for kind in kinds()}) == len(kinds()) >= 8


@pytest.mark.nightly
@pytest.mark.timeout(900)
@pytest.mark.parametrize("broker", sorted(BROKERS))
def test_half_a_minute_of_faults_loses_and_doubles_nothing(broker: str, capsys: pytest.CaptureFixture[str]) -> None:
    with tempfile.TemporaryDirectory(prefix="ws-chaos-") as directory:
        Path(directory).chmod(0o755)  # PostgreSQL runs as another user
        assert measure(0.5, 7, broker, Path(directory)), capsys.readouterr().out
