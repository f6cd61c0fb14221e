"""Nsight Compute's metrics of a candidate: a few more calls, in a fresh process under `ncu`.

Runners are forks of a preloaded process, and `ncu` has to start what it profiles; so this one process is started
afresh. It is confined as a runner is, as far as `ncu` allows; docs/threat-model.md says where it is weaker. It gets no
memory of the referee's and no seed, and makes its inputs itself: nothing that it does can reach a verdict.
"""

from __future__ import annotations

import itertools
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Collection, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import torch

from warpsmith.kernels_db.job.documents import Job, Nsight, NsightKernel, ResolvedWorkload
from warpsmith.workers.judge.nsight import access, metrics, profiled_run
from warpsmith.workers.judge.nsight.access import CAP_SYS_ADMIN, Permission
from warpsmith.workers.judge.nsight.launch import GRACE_S, Launch
from warpsmith.workers.judge.nsight.launcher import TIMED_OUT
from warpsmith.workers.judge.runner.fork_server_client import fork_server_environment
from warpsmith.workers.judge.runner.limits import runner_limits
from warpsmith.workers.judge.sandbox import sandbox
from warpsmith.workers.judge.sandbox.sandbox import Ability, Confinement, Profile

LIMIT_S = 120
"""Seconds for one run of `ncu`: importing torch, some ten replays of each launch."""
_SAID_BYTES = 2000
_MOST_RUNS = 4
"""Most runs of `ncu` for one profile.

A version of `ncu` may name the metrics that it does not know one by one, before it runs anything for long.
"""
_numbers = itertools.count()


@dataclass(frozen=True)
class Profiler:
    """`ncu` on this host.

    scratch: for directories of its runs. device: "cuda"; tests have "cpu".
    """

    ncu: str
    permission: Permission
    scratch: Path
    cores: int
    ability: Ability
    device: str = "cuda"
    limit_s: int = LIMIT_S

    def measure_of(self, job: Job, variables: Mapping[str, str]) -> Callable[[ResolvedWorkload], Nsight]:
        """`measure` of a job whose candidate finds its binaries by `variables`."""
        return lambda workload: self.measure(job, workload, variables)

    def measure(self, job: Job, workload: ResolvedWorkload, variables: Mapping[str, str]) -> Nsight:
        """Return the candidate's kernels on `workload`, or the reason why there are none.

        Raises nothing of `ncu`'s or the candidate's.

        variables: the environment by which the candidate finds its binaries.
        """
        if self.permission == "refused":
            return _nothing(f"the driver keeps its performance counters to administrators: {metrics.REMEDY}")
        directory = self.scratch / f"nsight-{next(_numbers)}"
        own = directory / "candidate"
        chosen = self._profile(job, own, variables)
        reached = self._reached(chosen)
        minimum = job["limits"].get("sandbox")
        if minimum is not None and not reached.reaches(minimum):
            return _nothing(f"limits.sandbox: found {reached.level} under ncu, expected {minimum}; nothing was run")
        try:
            try:
                return self._measured(job, workload, variables, directory, chosen)
            finally:
                shutil.rmtree(directory, ignore_errors=True)
        except metrics.NoMetrics as none:
            return {**_nothing(str(none)), "sandbox": reached.document()}
        except (OSError, subprocess.SubprocessError) as error:
            return _nothing(f"ncu could not be run: {error}")

    def _measured(
        self, job: Job, workload: ResolvedWorkload, variables: Mapping[str, str], directory: Path, chosen: Profile
    ) -> Nsight:
        """Measure without the metrics that this version does not know.

        Raises NoMetrics, OSError.
        """
        own = directory / "candidate"
        for place in (directory, own, directory / "ncu"):
            place.mkdir(mode=0o700)
        assert job["candidate"] is not None
        path = own / "candidate.py"
        path.write_text(job["candidate"]["source"], encoding="utf-8")
        request = {
            "mode": "candidate",
            "path": str(path),
            "math": job["op"]["math"],
            "language": job["candidate"]["language"],
            "device": self.device,
            "workload": workload,
            "directory": str(own),
            "profile": chosen.document(),
            "ability": asdict(self.ability),
            "administrator": self.permission == "administrator",
            "limit_s": self.limit_s,
            "calls": profiled_run.CALLS,
            "sanitized": False,
        }
        (directory / "request.json").write_text(json.dumps(request))
        without: set[str] = set()
        for last in (*[False] * (_MOST_RUNS - 1), True):
            try:
                return {
                    "kernels": self._run(directory, variables, without),
                    "sandbox": self._reached(chosen).document(),
                }
            except metrics.NoMetrics as none:
                if last or not set(none.unknown) - without:
                    raise
                without |= set(none.unknown)
        raise AssertionError("the last run returns or raises")

    def _run(self, directory: Path, variables: Mapping[str, str], without: Collection[str]) -> list[NsightKernel]:
        """Run `ncu` once. Raises NoMetrics, OSError."""
        answer, ncu_home = directory / "answer.csv", directory / "ncu"
        program = [
            sys.executable,
            "-P",
            "-m",
            "warpsmith.workers.judge.nsight.profiled_run",
            str(directory / "request.json"),
        ]
        spec = {
            "command": metrics.command(self.ncu, str(answer), program, without),
            "directory": str(ncu_home),
            "limits": runner_limits(0, 0, "candidate", self.cores, torch.device("cuda")),
            "network": self.ability.network,
            "keep": [CAP_SYS_ADMIN] if self.permission == "administrator" else [],
            "limit_s": self.limit_s,
        }
        (directory / "spec.json").write_text(json.dumps(spec))
        environment = fork_server_environment(self.cores) | {"HOME": str(ncu_home), "TMPDIR": str(ncu_home)}
        output = os.memfd_create("ncu-output", os.MFD_CLOEXEC)
        try:
            with Launch(directory / "spec.json", environment | dict(variables), output) as launched:
                status = launched.wait(self.limit_s + GRACE_S)
            said = os.pread(output, _SAID_BYTES, max(0, os.fstat(output).st_size - _SAID_BYTES))
        finally:
            os.close(output)
        try:
            return metrics.read(_read(answer))
        except metrics.NoMetrics as none:
            raise metrics.NoMetrics(_told(none, status, said, self.limit_s), none.unknown) from none

    def _profile(self, job: Job, own: Path, variables: Mapping[str, str]) -> Profile:
        """Return the sandbox profile of a runner of this candidate that may read `ncu`'s files too."""
        assert job["candidate"] is not None
        plain = sandbox.profile("candidate", self.device, job["candidate"]["language"], own, variables, self.cores)
        installed = str(Path(self.ncu).resolve().parent)
        return replace(plain, readable=(*plain.readable, installed))

    def _reached(self, chosen: Profile) -> Confinement:
        return profiled_run.layers(
            sandbox.expected(chosen, self.ability), administrator=self.permission == "administrator"
        )


def here(scratch: Path, cores: int, ability: Ability) -> Profiler | None:
    """Return the profiler of this host, by WARPSMITH_NCU or where it is found; None without one."""
    ncu = access.find(os.environ.get(access.VARIABLE))
    return None if ncu is None else Profiler(ncu, access.permission(), scratch, cores, ability)


def _read(path: Path) -> bytes:
    """Read what `ncu` wrote, at most one byte more than it may be.

    Returns nothing where there is no such file.
    """
    try:
        with path.open("rb") as file:
            return file.read(metrics.MOST_BYTES + 1)
    except FileNotFoundError:
        return b""


def _told(none: metrics.NoMetrics, status: int, said: bytes, limit_s: int) -> str:
    """Why there is no table, with the end of what was printed where that may say more."""
    if status == TIMED_OUT:
        return f"ncu did not end within {limit_s} s"
    last = next((line.strip() for line in reversed(said.decode(errors="replace").splitlines()) if line.strip()), "")
    return (
        f"{none} (the last that was printed: {last[:300]})" if last and metrics.REMEDY not in str(none) else str(none)
    )


def _nothing(reason: str) -> Nsight:
    return {"kernels": [], "reason": reason}
