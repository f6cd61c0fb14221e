"""A candidate under compute-sanitizer: the processes, and what becomes of their reports. A stand-in takes the place of
the tool; what it runs is the real process, on the CPU.
"""

from __future__ import annotations

import dataclasses
import json
import stat
import sys
import time
from pathlib import Path

import pytest

from benchmarks.jobs import job
from tests import judging, stand_in_sanitizer
from warpsmith.kernels_db.job.documents import Job
from warpsmith.kernels_db.runtime.cache import CACHE_VARIABLE
from warpsmith.workers.judge import languages
from warpsmith.workers.judge.sandbox import sandbox
from warpsmith.workers.judge.sanitizers import sanitizer
from warpsmith.workers.judge.sanitizers.report import TOOLS, Report
from warpsmith.workers.judge.sanitizers.sanitizer import Sanitizer

PLACE = judging.layer_norm_workload("bench", "bench", 8, 128)
CLEAN = "========= COMPUTE-SANITIZER\n========= ERROR SUMMARY: 0 errors\n"
WRONG = (
    "========= COMPUTE-SANITIZER\n========= Invalid __global__ write of size 4 bytes\n"
    "=========     at norm+0x90\n=========\n========= ERROR SUMMARY: 1 error\n"
)


@pytest.fixture
def place(tmp_path: Path) -> Sanitizer:
    """A stand-in in a directory of its own."""
    program = tmp_path / "bin" / sanitizer.NAME
    program.parent.mkdir()
    program.write_text(f"#!{sys.executable}\n{Path(stand_in_sanitizer.__file__).read_text()}")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    (tmp_path / "scratch").mkdir()
    return Sanitizer(str(program), tmp_path / "scratch", 1, sandbox.detect(), device="cpu", limit_s=100)


def reports(place: Sanitizer, asked: Job, **said: str) -> dict[str, Report]:
    """What the tools find in a job's candidate; nothing of the runs is left afterwards."""
    cache = place.scratch.parent / "kernels"
    assert asked["candidate"] is not None
    limits = languages.CompileLimits(seconds=100)
    languages.prepare(asked["candidate"]["source"], "cpp", target_arch="x86_64", cache_dir=cache, limits=limits)
    beside = Path(place.program).parent
    (beside / "report").write_text(json.dumps(dict.fromkeys(TOOLS, CLEAN) | said))
    with place.start(asked, dict.fromkeys(TOOLS, PLACE), {CACHE_VARIABLE: str(cache)}) as started:
        found = started.reports({"norm"})
    assert list(place.scratch.iterdir()) == []
    return dict(found)


def norm(body: str | None = None) -> Job:
    source = judging.GOOD_NORM if body is None else judging.norm_candidate(body)
    return job(judging.LAYER_NORM, [PLACE], source, level="verify")


def test_every_tool_runs_the_candidate_once_confined_and_its_report_counts(place: Sanitizer) -> None:
    found = reports(place, norm(), memcheck=WRONG)
    assert found["memcheck"].findings[0].line == "Invalid __global__ write of size 4 bytes; at norm+0x90"
    assert [found[tool] for tool in TOOLS[1:]] == [Report(())] * 3
    for tool in TOOLS:
        told = json.loads((Path(place.program).parent / tool).read_text())
        assert told["status"] == 0
        assert "PYTORCH_NO_CUDA_MEMORY_CACHING" in told["variables"]


@pytest.mark.nightly
def test_racecheck_lists_hazards_where_that_is_asked(place: Sanitizer) -> None:
    reports(place, norm())  # compiles
    hazard = (
        "========= Error: Potential WAR hazard detected at __shared__ 0x{0:x} in block (0,0,0) :\n"
        "=========     Read Thread ({0},0,0) at norm+0x550\n=========     Write Thread (128,0,0) at norm+0x1620\n"
        "=========     Current Value : 0, Incoming Value : ?\n"
    )
    hazards = "".join(hazard.format(thread) for thread in range(1, 32)) + "========= RACECHECK SUMMARY: 31 hazards\n"
    (Path(place.program).parent / "report").write_text(json.dumps({"racecheck": CLEAN, "hazard": hazards}))
    cache = {CACHE_VARIABLE: str(place.scratch.parent / "kernels")}
    with place.start(norm(), {"racecheck": PLACE}, cache, hazards=True) as started:
        assert started.arriving_lane({"norm"}, ()) == 0


@pytest.mark.nightly
def test_a_candidate_that_fails_under_a_tool_and_one_that_hangs_are_notes(place: Sanitizer) -> None:
    quick = dataclasses.replace(place, limit_s=15)
    start = time.monotonic()
    found = reports(quick, norm(), memcheck="", racecheck="hang")
    assert str(found["memcheck"].refused).startswith("it wrote no summary")
    assert found["racecheck"].refused == "not done within 15 s"
    assert time.monotonic() - start < 100


def test_the_tool_is_looked_for_where_cuda_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.delenv("CUDA_PATH", raising=False)
    monkeypatch.setattr(sanitizer, "_PLACES", (f"{tmp_path}/cuda-*/bin",))
    monkeypatch.setenv("CUDA_HOME", str(tmp_path / "home"))
    assert sanitizer.find() is None
    for directory in ("cuda-12/bin", "cuda-13/bin", "home/bin"):
        program = tmp_path / directory / sanitizer.NAME
        program.parent.mkdir(parents=True)
        program.touch(mode=0o755)
        assert sanitizer.find() == str(program)
