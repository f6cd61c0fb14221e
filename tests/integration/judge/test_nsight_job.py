"""A candidate under `ncu`: the processes, what they may do, and what becomes of whatever they say. A stand-in takes the
place of `ncu`; the profiled process is the real one, on the CPU.
"""

from __future__ import annotations

import dataclasses
import json
import os
import stat
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from benchmarks.jobs import job
from tests import judging, stand_in_ncu
from tests.support.waiting import wait_until
from warpsmith.kernels_db.job.documents import Job, Nsight
from warpsmith.kernels_db.runtime.cache import CACHE_VARIABLE
from warpsmith.workers.judge.machine import process_control
from warpsmith.workers.judge.nsight import access, profiler
from warpsmith.workers.judge.nsight.profiler import Profiler
from warpsmith.workers.judge.sandbox import sandbox

PLACE = judging.layer_norm_workload("bench", "bench", 8, 128)
TIME = "gpu__time_duration.sum"


class Place:
    """A stand-in for ncu in a directory of its own, and a profiler that uses it."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory / "bin"
        self.directory.mkdir()
        ncu = self.directory / "ncu"
        ncu.write_text(f"#!{sys.executable}\n{Path(stand_in_ncu.__file__).read_text()}")
        ncu.chmod(ncu.stat().st_mode | stat.S_IXUSR)
        self.mode("plain")
        scratch = directory / "scratch"
        scratch.mkdir()
        self.cache = directory / "kernels"
        self.profiler = Profiler(str(ncu), "everybody", scratch, 1, sandbox.detect(), device="cpu", limit_s=60)

    def mode(self, name: str) -> None:
        (self.directory / "mode").write_text(name)

    def measure(self, asked: Job, **changes: Any) -> Nsight:
        """Metrics of a job's candidate; nothing of the run is left afterwards."""
        found = dataclasses.replace(self.profiler, **changes).measure(asked, PLACE, {CACHE_VARIABLE: str(self.cache)})
        assert list(self.profiler.scratch.iterdir()) == []
        return found

    @property
    def calls(self) -> list[dict[str, Any]]:
        written = self.directory / "calls"
        return [json.loads(line) for line in written.read_text().splitlines()] if written.exists() else []


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def norm(body: str | None = None) -> Job:
    source = judging.GOOD_NORM if body is None else judging.norm_candidate(body)
    return job(judging.LAYER_NORM, [PLACE], source, level="profile")


def built(place: Place, asked: Job) -> Job:
    """The job, its kernels compiled as the gate `compile` does."""
    from warpsmith.workers.judge import languages  # noqa: PLC0415 - needs nothing else of the judge

    assert asked["candidate"] is not None
    languages.prepare(
        asked["candidate"]["source"],
        "cpp",
        target_arch="x86_64",
        cache_dir=place.cache,
        limits=languages.CompileLimits(seconds=60),
    )
    return asked


def test_a_candidates_metrics_come_with_what_stood_around_it(place: Place) -> None:
    found = place.measure(built(place, norm()))
    assert "reason" not in found, found
    (kernel,) = found["kernels"]
    assert (kernel["name"], kernel["launches"]) == ("norm(float *, long long)", 2)
    assert kernel["metrics"][TIME] == 1052.25
    assert kernel["metrics"]["dram__bytes_read.sum"] == 134.22e6
    assert "l1tex__t_sector_hit_rate.pct" not in kernel["metrics"]
    assert "memory watch" not in found["sandbox"]["layers"]
    assert "no capabilities" in found["sandbox"]["layers"]
    (call,) = place.calls
    assert call["program"][-2].endswith("profiled_run")
    assert not {"SSH_AUTH_SOCK", "PYTEST_CURRENT_TEST", "WARPSMITH_DATABASE_URL"} & set(call["environment"])


def test_what_the_candidate_does_wrong_is_told_and_costs_nothing_else(place: Place) -> None:
    found = place.measure(built(place, norm("*(volatile int*)8 = 1;")))
    assert found["kernels"] == []
    assert "No kernels were profiled" in found["reason"]
    absent = norm()
    assert absent["candidate"] is not None
    absent["candidate"]["source"] = "def run(*tensors):\n    raise RuntimeError('it fell')\n"
    assert "RuntimeError: it fell" in place.measure(absent)["reason"]


def test_the_candidate_is_confined_before_it_is_read(place: Place, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("nobody's business")
    ability = sandbox.detect()
    if not (ability.landlock and ability.seccomp):
        pytest.skip("this kernel has no Landlock or no filters")
    asked = norm()
    assert asked["candidate"] is not None
    asked["candidate"]["source"] = f"open({str(secret)!r}).read()\ndef run(*tensors):\n    pass\n"
    assert "PermissionError" in place.measure(asked)["reason"]
    asked["candidate"]["source"] = "import socket\nsocket.socket()\ndef run(*tensors):\n    pass\n"
    assert "PermissionError" in place.measure(asked)["reason"]


def test_nothing_runs_below_the_demanded_minimum(place: Place) -> None:
    weak = sandbox.Ability(landlock=0, seccomp=False, network="none", tasks="none")
    asked = norm()
    asked["limits"]["sandbox"] = "confined"
    found = place.measure(asked, ability=weak)
    assert found["kernels"] == []
    assert found["reason"] == "limits.sandbox: found process under ncu, expected confined; nothing was run"
    assert place.calls == []


def test_without_permission_nothing_runs_and_the_remedy_is_told(place: Place) -> None:
    assert "NVreg_RestrictProfilingToAdminUsers=0" in place.measure(norm(), permission="refused")["reason"]
    assert place.calls == []
    place.mode("permission")
    told = place.measure(norm())["reason"]
    assert "ERR_NVGPUCTRPERM" in told
    assert "NVreg_RestrictProfilingToAdminUsers=0" in told


def test_metrics_that_a_version_does_not_know_are_left_out(place: Place) -> None:
    place.mode("old")
    found = place.measure(built(place, norm()))
    assert [kernel["launches"] for kernel in found["kernels"]] == [2]
    assert len(place.calls) == 3
    assert "throughput" not in place.calls[2]["options"]["--metrics"].replace("sm__throughput", "").replace(
        "dram__throughput", ""
    )


def test_what_hangs_is_killed_with_all_that_it_started(place: Place) -> None:
    place.mode("hang")
    start = time.monotonic()
    found = place.measure(norm(), limit_s=4)
    assert found["reason"] == "ncu did not end within 4 s"
    assert time.monotonic() - start < 60
    pids = (place.directory / "hangs").read_text().split()
    assert len(pids) == 2  # the second had left its session and its group
    assert not [pid for pid in pids if Path("/proc", pid).exists()]


def test_all_of_it_ends_with_a_judge_that_is_killed(place: Place, tmp_path: Path) -> None:
    place.mode("hang")
    spec = tmp_path / "spec.json"
    command = [str(place.directory / "ncu"), *["--log-file", str(tmp_path / "log")], "--metrics", "x", "true"]
    told = {"command": command, "directory": str(tmp_path), "limits": {}, "network": "none", "keep": [], "limit_s": 600}
    spec.write_text(json.dumps(told))
    judge = subprocess.Popen(
        [
            *(sys.executable, "-c"),
            "import os, sys; from pathlib import Path; from warpsmith.workers.judge.nsight.launch import Launch;"
            "Launch(Path(sys.argv[1]), os.environ, os.memfd_create('output')).wait(600.0)",
            str(spec),
        ]
    )
    try:
        hangs = place.directory / "hangs"
        wait_until(lambda: hangs.exists() and len(hangs.read_text().split()) == 2, 60)
    finally:
        judge.kill()
        judge.wait()
    pids = hangs.read_text().split()
    wait_until(lambda: not [pid for pid in pids if Path("/proc", pid).exists()], 60)


def test_where_counters_are_an_administrators_one_capability_is_kept(place: Place) -> None:
    if not int(process_control.status(os.getpid())["CapEff"], 16) >> access.CAP_SYS_ADMIN & 1:
        pytest.skip("this user has no CAP_SYS_ADMIN to keep")
    asked = norm()
    assert asked["candidate"] is not None
    asked["candidate"]["source"] = (
        "said = [line for line in open('/proc/self/status') if line.startswith('CapEff')]\n"
        "def run(*tensors):\n    raise RuntimeError(said[0])\n"
    )
    assert "CapEff:\t0000000000000000" in place.measure(asked)["reason"]
    kept = place.measure(asked, permission="administrator")
    assert f"CapEff:\t{1 << access.CAP_SYS_ADMIN:016x}" in kept["reason"]
    assert "no capabilities" not in kept["sandbox"]["layers"]


def test_a_program_that_cannot_be_run_is_told(place: Place) -> None:
    (place.directory / "ncu").write_text("no program")
    assert "ncu gave no table" in place.measure(norm())["reason"]


def test_the_program_is_found_by_setting_or_path(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    ncu = str(place.directory / "ncu")
    monkeypatch.setenv("PATH", str(place.directory))
    assert access.find(None) == access.find(ncu) == ncu
    assert access.find("off") is None
    assert access.find("/nowhere/ncu") is None
    monkeypatch.setenv(access.VARIABLE, "off")
    assert profiler.here(place.profiler.scratch, 1, sandbox.detect()) is None
    monkeypatch.delenv(access.VARIABLE)
    assert profiler.here(place.profiler.scratch, 1, sandbox.detect()) is not None
