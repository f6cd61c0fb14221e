"""Judge every kernel that ships with Warpsmith, beside its baselines.

    python -m benchmarks.library [--only OP] [--stored] [--baselines eager,compile,max_autotune] [--json FILE]

On a machine with the GPU of their target each is judged in full (level verify), together with the baselines, in one
run: times in microseconds, the speed-up over the fastest baseline with its 95 % interval, and the share of the physical
limit. Without that GPU each is compiled for its architecture, and the Triton ones are checked under Triton's
interpreter on the smallest workloads; nothing is timed then. `--stored` judges nothing and prints the same table from
the verdicts that ship, with the device and the versions that they were measured on.

Exits with 1 where a kernel is rejected, or got no verdict.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import cast

from benchmarks.showcase import BASELINES, Shown, ask, lines, table, verify_job
from warpsmith.kernels_db.job.documents import Job, Verdict, judged_elsewhere
from warpsmith.kernels_db.library import Entry, entries
from warpsmith.workers.judge.protocol.client import JudgeClient

AT_ONCE = 4
"""Jobs that are with the judge at once: it prepares some while it times one."""


def job_of(entry: Entry, baselines: Sequence[str], time_s: float) -> Job:
    """Return the job that judges a kernel in full.

    A judge without its device takes it as far as it can.
    """
    job = verify_job(entry.op, entry.target, entry.language, entry.source, time_s)
    job["op"]["baselines"] = [each for each in job["op"]["baselines"] if each in baselines]
    return job


def judged(found: Sequence[Entry], cache: Path, baselines: Sequence[str], time_s: float) -> list[Shown]:
    """Judge every kernel, in order, and report each verdict as it comes."""
    shown: list[Shown] = []
    with JudgeClient(cache=cache) as client, ThreadPoolExecutor(AT_ONCE) as pool:
        for one in pool.map(lambda entry: ask(client, job_of(entry, baselines, time_s)), found):
            shown.append(one)
            print("\n".join(lines(one)), file=sys.stderr, flush=True)
    return shown


def stored(entry: Entry) -> Shown:
    """Return a kernel with its shipped verdict."""
    verdict = cast("Verdict", entry.evidence)
    return Shown(entry.op.name, entry.language, sum(verdict["seconds"].values()), verdict)


def is_good(one: Shown) -> bool:
    """Check whether a kernel is accepted, or its device is missing and nothing else is wrong."""
    if one.verdict is None or one.verdict["verdict"] == "accepted":
        return one.verdict is not None
    return one.verdict["verdict"] == "ambiguous" and judged_elsewhere(one.verdict) is not None


def main() -> int:
    """Print the table; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.library", description="The shipped kernels, judged.")
    parser.add_argument("--only", action="append", metavar="OP", help="this op alone; may be given again")
    parser.add_argument("--stored", action="store_true", help="judge nothing: the verdicts that ship")
    parser.add_argument("--baselines", default=",".join(BASELINES), help="some of eager,compile,max_autotune")
    parser.add_argument("--time-s", type=float, default=1.0, help="limits.time_s: seconds of timing a workload")
    parser.add_argument("--cache", type=Path, help="the judge's cache directory; by default one for this run alone")
    parser.add_argument("--json", metavar="FILE", type=Path, help="also write the verdicts here")
    arguments = parser.parse_args()
    baselines = arguments.baselines.split(",")
    if unknown := sorted(set(baselines) - set(BASELINES)):
        parser.error(f"--baselines: found {', '.join(unknown)}, expected some of {', '.join(BASELINES)}")
    found = list(entries())
    if unknown := sorted(set(arguments.only or ()) - {entry.op.name for entry in found}):
        parser.error(f"--only: found {', '.join(unknown)}, expected ops of {', '.join(e.op.name for e in found)}")
    found = [entry for entry in found if not arguments.only or entry.op.name in arguments.only]
    start = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="warpsmith-library-") as scratch:
        shown = (
            [stored(entry) for entry in found]
            if arguments.stored
            else judged(found, arguments.cache or Path(scratch), baselines, arguments.time_s)
        )
    if arguments.json:
        arguments.json.write_text(json.dumps([one.verdict for one in shown], indent=1))
    print(table(shown))
    print(f"\n{told(shown)}")
    good = sum(map(is_good, shown))
    accepted = sum(one.verdict is not None and one.verdict["verdict"] == "accepted" for one in shown)
    spent = "as shipped" if arguments.stored else f"in {time.monotonic() - start:.0f} s"
    print(f"{accepted} of {len(shown)} accepted, {good - accepted} compiled and not timed, {spent}")
    return 0 if good == len(shown) else 1


def told(shown: Sequence[Shown]) -> str:
    """Return devices and versions of the verdicts, each once."""
    of = {
        f"{one.verdict['device'].get('name', 'no device')}; "
        + ", ".join(f"{name} {version}" for name, version in sorted(one.verdict["versions"].items()))
        for one in shown
        if one.verdict is not None
    }
    return "\n".join(sorted(of))


if __name__ == "__main__":
    sys.exit(main())
