"""What is known of baselines beyond one process: whose it is, when it is stale, what damage does."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from warpsmith.kernels_db.job.documents import JobOp
from warpsmith.workers.judge.machine import cache_pruning
from warpsmith.workers.judge.reference.baseline_store import STALE_S, BaselineStore, OpStandings

DEVICE: dict[str, Any] = {"name": "a device", "cores": 4}
VERSIONS = {"torch": "2.0"}
ALL = ["eager", "compile", "max_autotune"]
TIMES = {"eager": 30.0, "compile": 10.0, "max_autotune": 12.0}


class Clock:
    """A clock that a test moves."""

    now = 1e9


def op(**changes: str) -> JobOp:
    """An op of which only the identity counts."""
    return cast("JobOp", {"digest": "d", "reference": "r", "math": "ieee", "name": "op", **changes})


def test_another_expert_is_another_op(tmp_path: Path) -> None:
    store = BaselineStore(tmp_path, DEVICE, VERSIONS, lambda: Clock.now, protocol=2)
    one, other = (cast("JobOp", {**op(), "experts": {"mine": f"def run(x): return x  # {n}"}}) for n in range(2))
    store.of(one).keep("w", {"eager": 30.0, "mine": 5.0}, {})
    assert store.of(one).find("w", ["eager", "mine"]) is not None
    assert store.of(other).find("w", ["eager"]) is None
    assert store.of(op()).find("w", ["eager"]) is None


def standings(place: Path, clock: Clock | None = None, device: dict[str, Any] | None = None, **op_: str) -> OpStandings:
    """An op's standings in the store at `place`."""
    now = clock or Clock()
    return BaselineStore(place, device or DEVICE, VERSIONS, lambda: now.now, protocol=2).of(op(**op_))


def test_a_fresh_process_knows_the_fastest_and_who_does_not_run(tmp_path: Path) -> None:
    standings(tmp_path).keep("w", {"eager": 30.0, "compile": 10.0}, {"max_autotune": "raises: no"})
    found = standings(tmp_path).find("w", ALL)
    assert found is not None
    assert found.fastest(ALL) == "compile"
    assert found.fastest(["eager"]) == "eager"
    assert found.unavailable == {"max_autotune": "raises: no"}
    assert found.measured_at == Clock.now


@pytest.mark.parametrize(
    "other",
    [{"digest": "e"}, {"reference": "s"}, {"math": "tf32"}, {"device": {**DEVICE, "cores": 5}}],
)
def test_it_is_of_one_op_workload_and_device(tmp_path: Path, other: dict[str, Any]) -> None:
    standings(tmp_path).keep("w", TIMES, {})
    assert standings(tmp_path, **other).find("w", ALL) is None
    assert standings(tmp_path).find("v", ALL) is None
    assert standings(tmp_path).find("w", ALL) is not None


def test_it_says_nothing_where_a_wanted_baseline_was_not_timed(tmp_path: Path) -> None:
    known = standings(tmp_path)
    known.keep("w", {"eager": 30.0}, {})
    assert known.find("w", ["eager"]) is not None
    assert known.find("w", ALL) is None
    known.keep("w", {}, dict.fromkeys(ALL, "crash"))
    assert known.find("w", ALL) is None, "there is nothing to beat"


@pytest.mark.parametrize(("age", "stale"), [(0, False), (STALE_S, False), (STALE_S + 1, True), (-1, True)])
def test_it_is_stale_after_a_day_and_from_the_future(tmp_path: Path, age: float, stale: bool) -> None:
    clock = Clock()
    known = standings(tmp_path, clock)
    known.keep("w", TIMES, {})
    clock.now = Clock.now + age
    assert (known.find("w", ALL) is None) == stale


@given(st.floats(0.01, 100))
def test_a_later_time_that_does_not_fit_has_all_timed_again(
    tmp_path_factory: pytest.TempPathFactory, by: float
) -> None:
    known = standings(tmp_path_factory.mktemp("store"))
    known.keep("w", TIMES, {})
    known.compare("w", "compile", TIMES["compile"] * by)
    assert (known.find("w", ALL) is None) == (abs(by - 1) > 0.2)
    known.compare("w", "compile", 1.0)
    known.compare("unknown", "compile", 1.0)


@pytest.mark.parametrize("damage", ["", "{", "[]", '{"median_us": 3}', '{"median_us": {"eager": "x"}}', "\0"])
def test_a_damaged_file_is_as_good_as_none(tmp_path: Path, damage: str) -> None:
    known = standings(tmp_path)
    known.keep("w", TIMES, {})
    (file,) = tmp_path.iterdir()
    file.write_text(damage)
    assert known.find("w", ALL) is None
    known.compare("w", "compile", 1.0)
    known.keep("w", TIMES, {})
    assert known.find("w", ALL) is not None
    assert json.loads(file.read_text())["median_us"] == TIMES


def test_what_nobody_used_for_weeks_goes(tmp_path: Path) -> None:
    place = tmp_path / "baselines"
    known = standings(place)
    known.keep("old", TIMES, {})
    (old,) = place.iterdir()
    os.utime(old, (1, 1))
    known.keep("new", TIMES, {})
    assert cache_pruning.prune(tmp_path) == [old]
    assert known.find("new", ALL) is not None
