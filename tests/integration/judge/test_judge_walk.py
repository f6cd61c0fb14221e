"""A judge job's way through the judge's modules is counted, and gets no longer."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.judge_walk import Step, is_climb


@pytest.mark.nightly
def test_a_job_is_traced_from_the_referee_to_the_clock(tmp_path: Path) -> None:
    told = tmp_path / "walk.json"
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.judge_walk", "--json", str(told)],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    counts = json.loads(told.read_text())
    rooms = {step["room"] for step in counts["walk"]}
    assert {"gates.referee", "gates.job_run", "runner.runner_handle", "reference.baselines", "clock.timing"} <= rooms
    assert not {room for room in rooms if room.startswith(("machine", "values"))}
    assert counts["stays"] == counts["rooms"] + counts["returns"] == sum(counts["by_room"].values())
    assert f"{counts['stays']} stays in {counts['rooms']} rooms" in done.stdout
    assert counts["by_room"]["gates.referee"] == 1, "nothing calls back into the referee"
    # Since it was 96 experts, sweeps, the host's time, timed checks, sanitizers' tools and readings came as rooms.
    assert counts["stays"] <= 109
    assert counts["climbs"] <= 4


def test_a_step_into_a_room_that_is_not_imported_climbs() -> None:
    assert is_climb(Step("clock.probe", "gates.runner_factory", "", ""))
    assert not is_climb(Step("gates.referee", "runner.runner_handle", "", "")), "by way of gates.job_run"
    assert not is_climb(Step("", "gates.referee", "", ""))
