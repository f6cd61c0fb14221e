"""A profile of a model on a busy processor, from its graph to what is printed. All times are given."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="models are run with torch, which is not installed")

import torch
from torch import nn

from warpsmith.service.cli.commands import models
from warpsmith.workers.judge.machine import host
from warpsmith.workers.optimize import alone, measuring, physical, profiling
from warpsmith.workers.optimize.bursts import AGAIN, TURNS
from warpsmith.workers.optimize.compiled import turns
from warpsmith.workers.optimize.compiled.inputs import Inputs
from warpsmith.workers.optimize.contract import UserModel
from warpsmith.workers.optimize.regions import Region
from warpsmith.workers.optimize.specs import Kind

pytestmark = pytest.mark.filterwarnings("ignore:.torch.jit.script_method. is deprecated:DeprecationWarning")
"""Inductor imports a module of its own that warns."""

PART, OTHER, WHOLE = "rms_norm", "linear", "rms_norm + linear"
BUSY = "other processes took 75% of this host's processor time during the timing"
UNSURE = (
    "the time of rms_norm is unsure: 24000.0 us alone, longer than rms_norm + linear, which contains it, with 60.0 us, "
    "and that counts; profile it again when the host is quiet"
)


@pytest.fixture
def profiled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[float], dict[str, Any]]:
    """Profiles a model whose normalisation takes 24 ms in all bursts but its last, which takes a given time."""

    def profile(last_us: float) -> dict[str, Any]:
        times = {PART: [*[24_000.0] * (TURNS + AGAIN), last_us], OTHER: [40.0], WHOLE: [60.0]}

        def ready(region: Region, _: Any) -> Callable[[], float]:
            left = times[region.title]
            return lambda: left.pop(0) if len(left) > 1 else left[0]

        readings = iter([host.Usage(0, 0, 0), host.Usage(1000, 900, 150)])
        of_model = iter([950.0, 63_000.0, 900.0, 100.0])
        monkeypatch.setattr(alone, "ready", ready)
        monkeypatch.setattr(host, "usage", lambda: next(readings))
        monkeypatch.setattr(turns, "time_each", lambda *given: next(of_model))
        monkeypatch.setattr(measuring, "operators", lambda *given: [])
        monkeypatch.setattr(physical, "limits", lambda ops, *given: [])
        x = torch.randn(6, 8)

        def describe_all(graphs: Any, kinds: Sequence[Kind], *given: Any) -> None:
            """Write no spec: that takes seconds, and nothing of it is looked at here."""
            for kind in kinds:
                kind.given = (x,)

        monkeypatch.setattr(profiling, "describe_all", describe_all)
        user = UserModel(Path("net.py"), nn.Sequential(nn.RMSNorm(8), nn.Linear(8, 4)).eval(), Inputs.of(x))
        cpu = torch.device("cpu")
        return profiling.profile(user, cpu, tmp_path / "specs", tmp_path, top=8, force=False, say=lambda _: None)

    return profile


def times_of(found: dict[str, Any]) -> dict[str, float]:
    return {one["operators"]: one["time_us"] for one in found["opportunities"]}


def test_a_burst_that_nothing_disturbed_is_enough(profiled: Callable[[float], dict[str, Any]]) -> None:
    found = profiled(20.0)
    assert (found["model_us"], found["compiled_us"]) == (900.0, 100.0)
    assert times_of(found) == {PART: 20.0, OTHER: 40.0, WHOLE: 60.0}
    assert found["notes"] == [BUSY]


def test_a_time_that_cannot_be_is_told_and_ranks_nothing(
    profiled: Callable[[float], dict[str, Any]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    found = profiled(24_000.0)
    assert times_of(found) == {PART: 60.0, OTHER: 40.0, WHOLE: 60.0}
    assert found["notes"] == [BUSY, UNSURE]
    (tmp_path / "net.py").touch()
    monkeypatch.setattr(models, "_ask", lambda request: found)
    models.profile_model(tmp_path / "net.py", "cpu", tmp_path / "specs", 8, False, False)
    lines = capsys.readouterr().out.splitlines()
    assert [line for line in lines if line.startswith("note: ")] == [f"note: {BUSY}", f"note: {UNSURE}"]
