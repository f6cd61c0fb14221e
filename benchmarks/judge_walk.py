"""Count how often a judge job changes modules on its way through the judge.

    python -m benchmarks.judge_walk [--json FILE]       needs a C++ compiler, no GPU; some ten seconds

One C++ candidate is judged at level `verify` on the CPU in this process, with every Python call traced
(`sys.setprofile`). Counted is what the referee's process calls from `Referee.prepare` to the verdict:

- A room is a module of `warpsmith.workers.judge`. The packages `machine` and `values` are no rooms but tools: they know
  tensors, processes and descriptors, and no job; a call into them is a look at a name, as a call of torch is.
- A step is a call from one room into another. Calls inside a room, returns from a call and generator expressions are
  none. Of several steps between the same two rooms in the same direction only the first counts: that is what makes one
  of a loop over workloads, calls, input families or modes, and a reader has seen that door open.
- A stay is a maximal run of consecutive steps into one room. Returns are stays beyond the first of each room.
- A climb is a step into a room that the caller's room does not import, directly or through others: a callable was
  handed down, and the place of the call does not say whom it calls, so a reader must search. The other returns go to
  services that several gates use.
"""

from __future__ import annotations

import argparse
import ast
import importlib.util
import json
import os
import sys
import tempfile
from collections import Counter
from dataclasses import dataclass
from functools import cache
from itertools import groupby
from pathlib import Path
from types import FrameType
from typing import Any

from benchmarks.jobs import Role, job, output, tensor, workload
from benchmarks.redteam_catalogue.text import cpp
from warpsmith.kernels_db.job.documents import Job, ResolvedWorkload, Verdict
from warpsmith.kernels_db.job.python_parsing import parse_module
from warpsmith.workers.judge.gates.referee import Referee
from warpsmith.workers.judge.languages import compile_service
from warpsmith.workers.judge.machine import process_control
from warpsmith.workers.judge.machine.host import cores_available
from warpsmith.workers.judge.runner.fork_server_client import ForkServer

JUDGE = "warpsmith.workers.judge."
TOOLS = ("machine", "values")

REFERENCE = "import torch\n\ndef run(x):\n    return torch.relu(x)\n"
CODE = """
extern "C" void relu(const float* x, float* y, int64_t n) {
    #pragma omp parallel for
    for (int64_t i = 0; i < n; i++) y[i] = x[i] > 0 ? x[i] : 0;
}
"""
RUN = "def run(x, y):\n    kernels.relu(x, y, x.numel())\n"


@dataclass(frozen=True)
class Step:
    """The first call from one room into another, with both functions. The first room is ""."""

    origin: str
    room: str
    caller: str
    called: str


class Walk:
    """Steps in order, as a profile function for `sys.setprofile`."""

    def __init__(self) -> None:
        self.steps: dict[tuple[str, str], Step] = {}

    def __call__(self, frame: FrameType, event: str, argument: object) -> None:
        if event != "call" or frame.f_code.co_name == "<genexpr>" or not (room := _room(frame)):
            return
        caller = frame.f_back
        while caller is not None and not _of_judge(caller):
            caller = caller.f_back
        origin = "" if caller is None else _room(caller)
        if origin is None or origin == room or (origin, room) in self.steps:
            return
        said = "" if caller is None else caller.f_code.co_qualname
        self.steps[origin, room] = Step(origin, room, said, frame.f_code.co_qualname)

    def count(self) -> dict[str, Any]:
        """Return the counts that the module's docstring defines, and the stays by room, most first."""
        stays = [room for room, _ in groupby(step.room for step in self.steps.values())]
        by_room = Counter(stays)
        return {
            "steps": len(self.steps),
            "stays": len(stays),
            "rooms": len(by_room),
            "returns": len(stays) - len(by_room),
            "climbs": sum(is_climb(step) for step in self.steps.values()),
            "by_room": dict(by_room.most_common()),
        }


def _of_judge(frame: FrameType) -> bool:
    return str(frame.f_globals.get("__name__", "")).startswith(JUDGE)


def _room(frame: FrameType) -> str | None:
    """Return the room of a frame; None for a tool and for code outside the judge."""
    if not _of_judge(frame):
        return None
    name = str(frame.f_globals["__name__"]).removeprefix(JUDGE)
    return None if name.partition(".")[0] in TOOLS else name


def is_climb(step: Step) -> bool:
    """Check whether a step goes to a room that the caller's room does not import."""
    return step.origin != "" and step.room not in _below(step.origin)


@cache
def _imports(room: str) -> frozenset[str]:
    """Return the judge's modules that a module's file imports, wherever in the file."""
    spec = importlib.util.find_spec(JUDGE + room)
    if spec is None or spec.origin is None:
        return frozenset()
    found = set()
    for node in ast.walk(parse_module(Path(spec.origin).read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module and f"{node.module}.".startswith(JUDGE):
            base = f"{node.module}.".removeprefix(JUDGE).rstrip(".")
            names = [base, *(f"{base}.{alias.name}".lstrip(".") for alias in node.names)]
            found |= {name for name in names if name and _is_module(name)}
    return frozenset(found)


@cache
def _is_module(room: str) -> bool:
    try:
        return importlib.util.find_spec(JUDGE + room) is not None
    except ModuleNotFoundError:  # the parent is no package
        return False


@cache
def _below(room: str) -> frozenset[str]:
    """Return every module that a room imports, directly or through others."""
    found: set[str] = set()
    waiting = [room]
    while waiting:
        for name in _imports(waiting.pop()) - found:
            found.add(name)
            waiting.append(name)
    return frozenset(found - {room})


def _relu_workload(name: str, role: Role, size: int) -> ResolvedWorkload:
    return workload(name, role, [tensor("x", (size,))], [output("y", (size,))])


def relu() -> Job:
    """Return a job that is accepted: one workload that is timed, one that is not."""
    workloads = [_relu_workload("bench", "bench", 1 << 14), _relu_workload("ragged", "test", 1001)]
    return job(REFERENCE, workloads, cpp(CODE, RUN), level="verify", time_s=0.5)


def walked(one: Job) -> tuple[Walk, Verdict]:
    """Return the walk of a job through a fresh referee in this process, and the verdict."""
    process_control.adopt_orphans()
    walk = Walk()
    with tempfile.TemporaryDirectory(prefix="judge-walk-") as place:
        scratch = Path(place) / "scratch"
        scratch.mkdir()
        cores = cores_available()
        server = ForkServer(cores, scratch)
        server.start()
        referee = Referee(Path(place) / "cache", scratch, cores, server)
        try:
            sys.setprofile(walk)
            try:
                verdict = referee.judge(referee.prepare(one))
            finally:
                sys.setprofile(None)
        finally:
            referee.close()
            compile_service.close()
    return walk, verdict


def main() -> int:
    """Print the walk and its counts; status 1 where the job ended before its last gates."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--json", type=Path, help="write the steps and the counts here")
    given = parser.parse_args()
    os.environ["GOMP_SPINCOUNT"] = "0"  # as the judge's own process does
    walk, verdict = walked(relu())
    for step in walk.steps.values():
        climbs = "  climbs" if is_climb(step) else ""
        print(f"{step.origin or 'start':<26} -> {step.room:<26} {step.caller} -> {step.called}{climbs}")
    counts = walk.count()
    visits = ", ".join(f"{room} {stays}" for room, stays in list(counts["by_room"].items())[:8])
    print(
        f"{counts['stays']} stays in {counts['rooms']} rooms with {counts['returns']} returns, "
        f"{counts['climbs']} climbs; most visits: {visits}"
    )
    if given.json is not None:
        steps = [vars(step) for step in walk.steps.values()]
        given.json.write_text(json.dumps({"walk": steps} | counts, indent=1) + "\n", encoding="utf-8")
    if verdict["gate"] not in ("time", "physics"):
        print(f"the job ended at gate {verdict['gate']}: {verdict['reason']}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
