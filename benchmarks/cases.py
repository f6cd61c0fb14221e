"""Judge kernels that somebody else wrote: are the wrong ones caught, and the honest ones accepted?

    python -m benchmarks.cases PLACE [--device cpu|cuda] [--only TEXT] [--aside yes|no] [--at-once N] [--json FILE]

PLACE has a folder for each case, with `op.yaml` or `op.json`, `kernel.py` and `about.json`: {"wrong": whether it must
be caught, "kind", "note": how it is wrong or why it is honest, "aside": whether it is kept for the end}. Or it is a
file of JSON lines with the same, a case a line, its `name`, and the texts as `op` and `kernel`:
`benchmarks/kernels_of_others/` has one for a CPU, two for a GPU and one of C++ with threads, written by authors who had
not read the judge.
Each case is judged at level verify against eager alone, with the counterexample search, and timed for a moment: it
shows what the judge finds right. Prints what became of each, and the two rates. A wrong kernel is caught where it is
rejected or quarantined. Exits with 1 where a wrong kernel was accepted or an honest one was not; a case that could
not be judged counts as neither.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from operator import itemgetter
from pathlib import Path
from typing import Any

import torch

from benchmarks.jobs import CPU
from benchmarks.showcase import gpu_target, judge_job
from warpsmith.kernels_db.spec.op import SpecErrors, load_op
from warpsmith.workers.judge.protocol.client import JudgeClient, JudgeError
from warpsmith.workers.judging.candidates import read_candidate

TIME_S = 0.1
TIMEOUT_S = 240.0
CAUGHT = ("rejected", "quarantined")


@dataclass(frozen=True)
class Case:
    """A kernel with what its author says of it."""

    name: str
    op: str
    source: str
    wrong: bool
    kind: str
    note: str
    aside: bool


@dataclass(frozen=True)
class Outcome:
    """What the judge made of a case. `verdict`: None where there is none, `reason` then says why."""

    name: str
    wrong: bool
    kind: str
    note: str
    verdict: str | None
    gate: str | None
    failure: str | None
    score: float | None
    reason: str
    seconds: float

    @property
    def good(self) -> bool | None:
        """Whether a wrong kernel was caught, an honest one accepted; None where nothing was proved."""
        if self.verdict in (None, "ambiguous"):
            return None
        return self.verdict in CAUGHT if self.wrong else self.verdict == "accepted"


def read_cases(place: Path) -> list[Case]:
    """Return the cases of a folder or a file of JSON lines, by name. Raises OSError, KeyError, ValueError."""
    if place.is_file():
        told = [json.loads(line) for line in place.read_text().splitlines()]
        return [_case(each["name"], each["op"], each["kernel"], each) for each in sorted(told, key=itemgetter("name"))]
    found = []
    for about in sorted(place.glob("*/about.json")):
        spec = next(path for name in ("op.yaml", "op.json") if (path := about.parent / name).is_file())
        source = (about.parent / "kernel.py").read_text()
        found.append(_case(about.parent.name, spec.read_text(), source, json.loads(about.read_text())))
    return found


def _case(name: str, op: str, source: str, about: Mapping[str, Any]) -> Case:
    aside = bool(about.get("aside", False))
    return Case(name, op, source, bool(about["wrong"]), about["kind"], about["note"], aside)


def judge(client: JudgeClient, case: Case, target: str) -> Outcome:
    """Judge a case."""
    start = time.monotonic()
    verdict = None
    try:
        op = load_op(case.op)
        candidate = read_candidate(op, case.source, None)
        job = judge_job(op, target, candidate.language, candidate.source, TIME_S)
        job["op"]["baselines"] = ["eager"]
        verdict = client.judge(job, TIMEOUT_S)
        reason = verdict["reason"]
    except (JudgeError, SpecErrors) as error:
        reason = f"{type(error).__name__}: {str(error)[-300:]}"
    failure = verdict["failure"]["kind"] if verdict is not None and verdict["failure"] is not None else None
    return Outcome(
        case.name,
        case.wrong,
        case.kind,
        case.note,
        None if verdict is None else verdict["verdict"],
        None if verdict is None else verdict["gate"],
        failure,
        None if verdict is None else verdict["score"],
        reason,
        round(time.monotonic() - start, 1),
    )


def line(one: Outcome) -> str:
    """Return one row of the table."""
    mark = {True: "", False: "MISSED" if one.wrong else "REFUSED", None: "undecided"}[one.good]
    found = f"{one.verdict or 'none'} {one.gate or ''} {one.failure or ''}"
    score = "" if one.score is None else f"{one.score:.2f}x"
    says = f"{one.note[:100]} | {one.reason[:160]}" if one.good is not True else one.reason[:90]
    kind = "wrong" if one.wrong else "honest"
    return f"{mark:9} {kind:6} {one.name:34.34} {found:38.38} {score:>7} {one.seconds:6.1f} s  {says}"


def rates(found: Sequence[Outcome]) -> str:
    """Return the two rates in a line each."""
    lines = []
    for wrong, words in ((True, "wrong kernels caught"), (False, "honest kernels accepted")):
        of = [one for one in found if one.wrong is wrong]
        good, open_ = sum(one.good is True for one in of), sum(one.good is None for one in of)
        lines.append(f"{words}: {good} of {len(of)}" + (f", {open_} undecided" if open_ else ""))
    return "\n".join(lines)


def main() -> int:
    """Judge the cases and print the table; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.cases", description="Kernels of others, judged.")
    parser.add_argument("place", type=Path, metavar="PLACE", help="a folder of cases, or a file of JSON lines")
    parser.add_argument("--device", choices=("cpu", "cuda"), help="default: the GPU where there is one")
    parser.add_argument("--only", action="append", metavar="TEXT", help="cases whose name has this; may be given again")
    parser.add_argument(
        "--aside", choices=("yes", "no"), help="only those that are kept for the end, or only the others"
    )
    parser.add_argument("--at-once", type=int, default=2, metavar="N", help="jobs that are with the judge at once")
    parser.add_argument("--json", metavar="FILE", type=Path, help="also write every row here")
    arguments = parser.parse_args()
    device = arguments.device or ("cuda" if torch.cuda.is_available() else "cpu")
    target = CPU if device == "cpu" else gpu_target() or "cuda:sm_90"
    cases = read_cases(arguments.place)
    cases = [one for one in cases if arguments.aside is None or one.aside == (arguments.aside == "yes")]
    cases = [one for one in cases if not arguments.only or any(text in one.name for text in arguments.only)]
    if not cases:
        parser.error(f"PLACE: found no case in {arguments.place}, expected folders with about.json, or JSON lines")
    found: list[Outcome] = []
    with (
        tempfile.TemporaryDirectory(prefix="warpsmith-cases-") as cache,
        JudgeClient(cache=Path(cache)) as client,
        ThreadPoolExecutor(arguments.at_once) as pool,
    ):
        for outcome in pool.map(lambda case: judge(client, case, target), cases):
            found.append(outcome)
            print(line(outcome), flush=True)
            if arguments.json:
                arguments.json.write_text(json.dumps([asdict(one) for one in found], indent=1))
    print(rates(found))
    return 1 if any(one.good is False for one in found) else 0


if __name__ == "__main__":
    sys.exit(main())
