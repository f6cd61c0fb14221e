"""Run a candidate under compute-sanitizer: one call for each tool, all at once.

Like `ncu` a tool has to start what it looks at, so this is a fresh process of its own, which makes its inputs itself
and is confined as `nsight.profiled_run` is. A tool's report can reject a candidate and never accept one.
"""

from __future__ import annotations

import glob
import itertools
import json
import os
import shutil
import sys
import time
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from types import TracebackType

import torch

from warpsmith.kernels_db.job.documents import Job, ResolvedWorkload
from warpsmith.workers.judge.nsight import profiled_run
from warpsmith.workers.judge.nsight.launch import GRACE_S, Launch
from warpsmith.workers.judge.nsight.launcher import TIMED_OUT
from warpsmith.workers.judge.runner.fork_server_client import fork_server_environment
from warpsmith.workers.judge.runner.limits import runner_limits
from warpsmith.workers.judge.sandbox import sandbox
from warpsmith.workers.judge.sandbox.sandbox import Ability, Confinement, Profile
from warpsmith.workers.judge.sanitizers import report
from warpsmith.workers.judge.sanitizers.report import Finding, Report, Tool

NAME = "compute-sanitizer"
LIMIT_S = 30
"""Seconds for one tool: importing torch, and one call that is some hundred times slower than it is."""

_PLACES = ("/usr/local/cuda/bin", "/usr/local/cuda/compute-sanitizer", "/usr/local/cuda-*/bin", "/opt/cuda/bin")
_numbers = itertools.count()


def find() -> str | None:
    """Return the program's path: by PATH, CUDA_HOME, CUDA_PATH or where CUDA is usually; None where there is none."""
    homes = [os.path.join(os.environ[name], "bin") for name in ("CUDA_HOME", "CUDA_PATH") if os.environ.get(name)]
    places = [place for pattern in (*homes, *_PLACES) for place in sorted(glob.glob(pattern), reverse=True)]
    return shutil.which(NAME) or shutil.which(NAME, path=os.pathsep.join(places))


@dataclass(frozen=True)
class Sanitizer:
    """compute-sanitizer on this host.

    scratch: for directories of its runs. device: "cuda"; tests have "cpu".
    """

    program: str
    scratch: Path
    cores: int
    ability: Ability
    device: str = "cuda"
    limit_s: int = LIMIT_S

    def confinement(self, job: Job) -> Confinement:
        """Return what would confine the candidate of a job under a tool."""
        return profiled_run.layers(sandbox.expected(self._profile(job, Path(), {}), self.ability), administrator=False)

    def start(
        self,
        job: Job,
        workloads: Mapping[Tool, ResolvedWorkload],
        variables: Mapping[str, str],
        *,
        hazards: bool = False,
    ) -> Sanitizing:
        """Start tools on one call of a job's candidate. Close what is returned.

        workloads: what each tool looks at. variables: the environment by which the candidate finds its binaries.
        hazards: have racecheck list threads (`report.command`). Raises OSError.
        """
        started = Sanitizing(self.limit_s)
        try:
            for tool, workload in workloads.items():
                started.add(tool, *self._started(tool, job, workload, variables, hazards))
        except BaseException:
            started.close()
            raise
        return started

    def _started(
        self, tool: Tool, job: Job, workload: ResolvedWorkload, variables: Mapping[str, str], hazards: bool
    ) -> tuple[Launch, Path]:
        directory = self.scratch / f"sanitizer-{next(_numbers)}"
        own, home = directory / "candidate", directory / "tool"
        for place in (directory, own, home):
            place.mkdir(mode=0o700)
        assert job["candidate"] is not None
        (own / "candidate.py").write_text(job["candidate"]["source"], encoding="utf-8")
        request = {
            "mode": "candidate",
            "path": str(own / "candidate.py"),
            "math": job["op"]["math"],
            "language": job["candidate"]["language"],
            "device": self.device,
            "workload": workload,
            "directory": str(own),
            "profile": self._profile(job, own, variables).document(),
            "ability": asdict(self.ability),
            "administrator": False,
            "limit_s": self.limit_s,
            "calls": 0,
            "sanitized": True,
        }
        (directory / "request.json").write_text(json.dumps(request))
        run = [sys.executable, "-P", "-m", "warpsmith.workers.judge.nsight.profiled_run", f"{directory}/request.json"]
        spec = {
            "command": report.command(self.program, tool, f"{directory}/report", run, hazards=hazards),
            "directory": str(home),
            "limits": runner_limits(0, 0, "candidate", self.cores, torch.device("cuda")),
            "network": self.ability.network,
            "keep": [],
            "limit_s": self.limit_s,
        }
        (directory / "spec.json").write_text(json.dumps(spec))
        # Each tensor is an allocation of its own, whose ends a tool knows; torch's allocator would hide them.
        ours = {"HOME": str(home), "TMPDIR": str(home), "PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}
        output = os.open(directory / "output", os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            launch = Launch(
                directory / "spec.json", fork_server_environment(self.cores) | dict(variables) | ours, output
            )
        finally:
            os.close(output)
        return launch, directory

    def _profile(self, job: Job, own: Path, variables: Mapping[str, str]) -> Profile:
        """Return the sandbox profile of a runner of this candidate that may read the tool's libraries, too."""
        assert job["candidate"] is not None
        plain = sandbox.profile("candidate", self.device, job["candidate"]["language"], own, variables, self.cores)
        beside = Path(self.program).resolve().parent  # in `bin` there may be a script that starts what lies next to it
        installed = [str(place) for place in (beside, beside.parent / NAME) if place.is_dir()]
        return replace(plain, readable=(*plain.readable, *installed))


class Sanitizing:
    """Tools at work on one candidate. Close it: nothing of them is left then."""

    def __init__(self, limit_s: int) -> None:
        self._deadline = time.monotonic() + limit_s + GRACE_S
        self._limit_s = limit_s
        self._tools: dict[Tool, tuple[Launch, Path]] = {}

    def add(self, tool: Tool, launch: Launch, directory: Path) -> None:
        """Have one more tool."""
        self._tools[tool] = launch, directory

    def reports(self, kernels: Collection[str]) -> dict[Tool, Report]:
        """Wait for every tool and return what each found in these kernels."""
        return {tool: self._report(*started, kernels) for tool, started in self._tools.items()}

    def arriving_lane(self, kernels: Collection[str], races: Collection[Finding]) -> int | None:
        """Wait for racecheck, started with `hazards`, and return what `report.arriving_lane` reads in its report."""
        status, said = self._said(*self._tools["racecheck"], report.MOST_HAZARD_BYTES)
        return None if status == TIMED_OUT else report.arriving_lane(said, kernels, races)

    def _said(self, launch: Launch, directory: Path, most: int) -> tuple[int | str, bytes]:
        """Wait for a tool; returns how it ended and its report, a byte more than `most` where it is longer."""
        status = launch.wait(max(0.0, self._deadline - time.monotonic()))
        try:
            with (directory / "report").open("rb") as file:
                return status, file.read(most + 1)
        except FileNotFoundError:
            return status, b""

    def _report(self, launch: Launch, directory: Path, kernels: Collection[str]) -> Report:
        status, said = self._said(launch, directory, report.MOST_BYTES)
        found = report.read(said, kernels)
        if found.findings or found.refused is None:
            return found
        if status == TIMED_OUT:
            return replace(found, refused=f"not done within {self._limit_s} s")
        last = _last_line(directory / "output")
        return replace(found, refused=f"{found.refused} (the last that was printed: {last})" if last else found.refused)

    def close(self) -> None:
        """End every tool."""
        for launch, directory in self._tools.values():
            launch.close()
            shutil.rmtree(directory, ignore_errors=True)
        self._tools = {}

    def __enter__(self) -> Sanitizing:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _last_line(output: Path) -> str:
    with output.open("rb") as file:
        file.seek(max(0, output.stat().st_size - 2000))
        lines = [line.strip() for line in file.read().decode(errors="replace").splitlines()]
    return next((line[:300] for line in reversed(lines) if line), "")


def here(scratch: Path, cores: int, ability: Ability) -> Sanitizer | None:
    """Return compute-sanitizer on this host; None where it is not installed."""
    program = find()
    return None if program is None else Sanitizer(program, scratch, cores, ability)
