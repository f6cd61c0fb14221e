"""Measure what the search for counterexamples and the sanitizers add to a verification, by gate.

    python -m benchmarks.gate_seconds [--only OP] [--time-s S] [--json FILE]

Needs the GPU that the kernels of the library are for. Each is verified three times on one judge: once to warm up (the
reference and its baselines stay in their processes, as in a search), once without both (the checks of protocol 2), and
once in full, with the limits of a search unless others are given. Prints the seconds of each gate for the last two and
their ratio. Compiling is the same in both and comes from the cache. Exits with 1 where a verdict is not `accepted`.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmarks.library import job_of
from benchmarks.showcase import ask, gpu_target
from warpsmith.kernels_db.job.documents import Job
from warpsmith.kernels_db.library import Entry, entries
from warpsmith.kernels_db.spec.resolve import DEFAULT_LIMITS
from warpsmith.workers.judge.protocol.client import JudgeClient

GATES = ("compile", "reference", "screen", "verify", "time")
BASELINES = ("eager", "compile")


@dataclass(frozen=True)
class Row:
    """A kernel's verification without and with both, seconds by gate."""

    op: str
    plain: dict[str, float]
    full: dict[str, float]
    questions: int

    @property
    def ratio(self) -> float:
        """Seconds of the verification in full by those of the plain one."""
        return sum(self.full.values()) / sum(self.plain.values())


def measure(client: JudgeClient, entry: Entry, time_s: float) -> Row:
    """Verify a kernel of the library three times. Raises LookupError where it is not accepted."""
    full = job_of(entry, BASELINES, time_s)
    plain = job_of(entry, BASELINES, time_s)
    plain["limits"] |= {"attack_s": 0.0, "sanitize": False}
    _, (_, without), (questions, with_both) = (_verified(client, job) for job in (full, plain, full))
    return Row(entry.op.name, without, with_both, questions)


def _verified(client: JudgeClient, job: Job) -> tuple[int, dict[str, float]]:
    """Return the questions that the search asked, and the seconds of each gate."""
    one = ask(client, job)
    if one.verdict is None or one.verdict["verdict"] != "accepted":
        raise LookupError(f"{one.op}: {one.error or (one.verdict and one.verdict['reason'])}")
    tries = one.verdict.get("attack", {}).get("tries", 0)
    return tries, {gate: round(one.verdict["seconds"].get(gate, 0.0), 2) for gate in GATES}


def table(rows: Sequence[Row]) -> str:
    """Return the table as Markdown: for each gate the seconds without and with both."""
    head = ["op", *(f"{gate}, without / with" for gate in GATES), "all", "ratio", "questions"]
    lines = [head, ["---"] * len(head)]
    for row in rows:
        pairs = [f"{row.plain[gate]:.1f} / {row.full[gate]:.1f}" for gate in GATES]
        every = f"{sum(row.plain.values()):.1f} / {sum(row.full.values()):.1f}"
        lines.append([row.op, *pairs, every, f"{row.ratio:.2f}", str(row.questions)])
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def main() -> int:
    """Measure and print; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gate_seconds", description="A verification by gate.")
    parser.add_argument("--only", action="append", metavar="OP", help="this op alone; may be given again")
    parser.add_argument(
        "--time-s", type=float, default=DEFAULT_LIMITS["time_s"], help="limits.time_s: seconds of timing a workload"
    )
    parser.add_argument("--json", metavar="FILE", type=Path, help="also write the rows here")
    arguments = parser.parse_args()
    found = [one for one in entries() if not arguments.only or one.op.name in arguments.only]
    found = [one for one in found if one.target == gpu_target()]
    if not found:
        parser.error(f"found no kernel of the library for {gpu_target() or 'a CPU'} among {arguments.only or 'all'}")
    rows, failed = [], 0
    with tempfile.TemporaryDirectory(prefix="warpsmith-seconds-") as cache, JudgeClient(cache=Path(cache)) as client:
        for entry in found:
            try:
                rows.append(measure(client, entry, arguments.time_s))
                print(table(rows[-1:]).splitlines()[-1], file=sys.stderr, flush=True)
            except LookupError as error:
                failed += 1
                print(error, file=sys.stderr, flush=True)
    if rows:
        print(table(rows))
        print(f"\nin the geometric mean {statistics.geometric_mean(row.ratio for row in rows):.2f} times as long")
    if arguments.json:
        arguments.json.write_text(json.dumps([asdict(row) for row in rows], indent=1))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
