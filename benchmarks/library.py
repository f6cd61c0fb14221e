"""Judge every kernel that ships with Warpsmith, beside its baselines.

    python -m benchmarks.library [--only OP] [--stored] [--baselines eager,compile,max_autotune] [--json FILE]
    python -m benchmarks.library --experts liger,quack [--screen]
    python -m benchmarks.library --stored --markdown     # the table of docs/results.md
    python -m benchmarks.library --read FILE [--markdown]

On a machine with the GPU of their target each is judged in full (level verify), together with the baselines, in one
run: times in microseconds, the speed-up over the fastest baseline with its 95 % interval, and the share of the physical
limit. Each GPU of the first one's kind has a judge of its own, and the kernels of an op share a GPU. Without that GPU
each is compiled for its architecture, and the Triton ones are checked under Triton's interpreter on the smallest
workloads; nothing is timed then. `--stored` judges nothing and prints the same table from the verdicts that ship, with
the device and the versions that they were measured on; `--read` from what an earlier run's `--json` wrote. `--markdown`
prints one row a kernel and nothing else. `--json` is written anew with each verdict, so a stop costs no more than what
was not judged yet.

`--experts`: the kernels of ops that these libraries have, beside them as further baselines
(`benchmarks.library_experts`). An expert that is not installed, fails or is wrong is named below the table, with the
reason. `--screen`: at level screen, the bench workloads alone, which takes a fraction of the time and attacks nothing.

Exits with 1 where a kernel is rejected, or got no verdict.
"""

from __future__ import annotations

import argparse
import contextlib
import queue
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import cast

from benchmarks.library_experts import EXPERTS, NAMES, with_experts
from benchmarks.showcase import (
    BASELINES,
    Shown,
    ask,
    host_cost,
    judge_job,
    lines,
    read_verdicts,
    table,
    write_verdicts,
)
from warpsmith.kernels_db.job.baselines import PYTORCH_BASELINES
from warpsmith.kernels_db.job.documents import Job, Level, Verdict, WorkloadVerdict, judged_elsewhere
from warpsmith.kernels_db.job.means import limit_fraction
from warpsmith.kernels_db.library import Entry, entries
from warpsmith.kernels_db.spec.op import Op
from warpsmith.workers.judge.protocol.client import JudgeClient
from warpsmith.workers.judging import machine

AT_ONCE = 4
"""Jobs that are with the judge at once: it prepares some while it times one."""
MARKDOWN = (
    "op",
    "language",
    "GPU",
    "speed-up",
    "slowest size",
    "fastest size",
    "surely slower at",
    "of the limit",
    "host us",
)
"""The columns of `markdown`."""


@dataclass(frozen=True)
class Kernel:
    """A kernel that ships, to be judged beside experts."""

    op: Op
    target: str
    language: str
    source: str


def kernels_beside(found: Sequence[Entry], experts: Sequence[str]) -> list[Kernel]:
    """Return the shipped kernels; with `experts`, those of ops that these have."""
    kernels = [Kernel(entry.op, entry.target, entry.language, entry.source) for entry in found]
    if not experts:
        return kernels
    return [
        replace(kernel, op=with_experts(kernel.op, experts))
        for kernel in kernels
        if set(EXPERTS.get(kernel.op.name, ())) & set(experts)
    ]


def job_of(kernel: Entry | Kernel, baselines: Sequence[str], time_s: float, level: Level = "verify") -> Job:
    """Return the job that judges a kernel, in full by default, beside those of PyTorch's baselines and all its experts.

    A judge without its device takes it as far as it can.
    """
    job = judge_job(kernel.op, kernel.target, kernel.language, kernel.source, time_s, level)
    left_out = set(PYTORCH_BASELINES) - set(baselines)
    job["op"]["baselines"] = [each for each in job["op"]["baselines"] if each not in left_out]
    return job


def devices() -> list[str | None]:
    """Return what each judge of a run sees of this machine: a GPU of the first one's kind, or None without a GPU."""
    found = machine.gpus()
    return [gpu.uuid for gpu in found if gpu.name == found[0].name] or [None]


def judged(
    found: Sequence[Kernel],
    cache: Path,
    baselines: Sequence[str],
    time_s: float,
    level: Level,
    report: Callable[[list[Shown]], None],
) -> list[Shown]:
    """Judge every kernel; `report` gets all verdicts so far with each that comes, in the order of the kernels."""
    shown: dict[int, Shown] = {}
    waiting: queue.SimpleQueue[list[tuple[int, Job]]] = queue.SimpleQueue()
    # Before there are threads: Python before 3.11.8 raises SystemError where two of them parse source at once.
    jobs = [job_of(kernel, baselines, time_s, level) for kernel in found]
    for name in dict.fromkeys(kernel.op.name for kernel in found):
        waiting.put([(number, jobs[number]) for number, kernel in enumerate(found) if kernel.op.name == name])
    telling = threading.Lock()

    def serve(client: JudgeClient) -> None:
        with contextlib.suppress(queue.Empty):
            while True:
                for number, job in waiting.get_nowait():
                    one = ask(client, job)
                    with telling:
                        shown[number] = one
                        print("\n".join(lines(one)), file=sys.stderr, flush=True)
                        report([shown[each] for each in sorted(shown)])

    with contextlib.ExitStack() as stack:
        seen = devices()
        clients = [
            stack.enter_context(JudgeClient(cache=cache / str(number), visible=visible))
            for number, visible in enumerate(seen)
        ]
        pool = stack.enter_context(ThreadPoolExecutor(AT_ONCE * len(clients)))
        list(pool.map(serve, clients * AT_ONCE))
    return [shown[number] for number in sorted(shown)]


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
    parser.add_argument("--read", metavar="FILE", type=Path, help="judge nothing: the verdicts of an earlier run")
    parser.add_argument("--markdown", action="store_true", help="print a Markdown table, one row a kernel")
    parser.add_argument("--baselines", default=",".join(BASELINES), help="some of eager,compile,max_autotune")
    parser.add_argument("--experts", default="", help=f"some of {','.join(NAMES)}: judge kernels beside these")
    parser.add_argument("--screen", action="store_true", help="judge the bench workloads alone, at level screen")
    parser.add_argument("--time-s", type=float, default=1.0, help="limits.time_s: seconds of timing a workload")
    parser.add_argument("--cache", type=Path, help="the judge's cache directory; by default one for this run alone")
    parser.add_argument("--json", metavar="FILE", type=Path, help="also write the verdicts here")
    arguments = parser.parse_args()
    baselines = arguments.baselines.split(",")
    if unknown := sorted(set(baselines) - set(BASELINES)):
        parser.error(f"--baselines: found {', '.join(unknown)}, expected some of {', '.join(BASELINES)}")
    experts = [name for name in arguments.experts.split(",") if name]
    if unknown := sorted(set(experts) - set(NAMES)):
        parser.error(f"--experts: found {', '.join(unknown)}, expected some of {', '.join(NAMES)}")
    if arguments.read and (arguments.stored or arguments.json):
        parser.error("--read: found it beside --stored or --json, expected it without them")
    if arguments.stored and experts:
        parser.error("--experts: found it beside --stored, which judges nothing, expected one of the two")
    found = list(entries())
    known = {entry.op.name for entry in found}
    if unknown := sorted(set(arguments.only or ()) - known):
        parser.error(f"--only: found {', '.join(unknown)}, expected ops of {', '.join(sorted(known))}")
    found = [entry for entry in found if not arguments.only or entry.op.name in arguments.only]

    def write(shown: Sequence[Shown]) -> None:
        if arguments.json:
            write_verdicts(arguments.json, shown)

    start = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="warpsmith-library-") as scratch:
        shown = (
            read_verdicts(arguments.read)
            if arguments.read
            else [stored(entry) for entry in found]
            if arguments.stored
            else judged(
                kernels_beside(found, experts),
                arguments.cache or Path(scratch),
                baselines,
                arguments.time_s,
                "screen" if arguments.screen else "verify",
                write,
            )
        )
    write(shown)
    good = sum(map(is_good, shown))
    if arguments.markdown:
        print(markdown(shown))
        return 0 if good == len(shown) else 1
    without = [line for one in shown if one.verdict is None for line in lines(one)]
    print("\n".join([table(shown), *without, *left_out(shown)]))
    print(f"\n{told(shown)}")
    accepted = sum(one.verdict is not None and one.verdict["verdict"] == "accepted" for one in shown)
    spent = "as stored" if arguments.stored or arguments.read else f"in {time.monotonic() - start:.0f} s"
    print(f"{accepted} of {len(shown)} accepted, {good - accepted} compiled and not timed, {spent}")
    return 0 if good == len(shown) else 1


def markdown(shown: Sequence[Shown]) -> str:
    """Return a Markdown table with a row for each kernel, the greatest speed-up first.

    Speed-ups are over the fastest baseline, with their 95 % intervals: the geometric mean over the bench workloads,
    then the workloads where it is least and greatest. `surely slower at` names those whose interval ends below 1. The
    share of the physical limit is a geometric mean as well. What a verdict does not have is a dash.
    """
    ranked = sorted(shown, key=lambda one: (-((one.verdict and one.verdict["score"]) or 0.0), one.op))
    head, *rows = (f"| {' | '.join(row)} |" for row in (MARKDOWN, *map(_row, ranked)))
    return "\n".join([head, "|" + "---|" * len(MARKDOWN), *rows])


def _row(one: Shown) -> tuple[str, ...]:
    """Return a kernel's cells below `MARKDOWN`."""
    verdict = one.verdict
    if verdict is None:
        return (one.op, one.language, *["-"] * (len(MARKDOWN) - 2))
    timed = sorted(
        ((item["id"], *_least(item)) for item in verdict["workloads"] if item["role"] == "bench" and item["speedup"]),
        key=lambda size: size[1],
    )
    sizes = [f"{name}: {_gain(value, ends)}" for name, value, ends in timed]
    slower = [name for name, _, (_, high) in timed if high < 1.0]
    score, ends, share = verdict["score"], verdict["score_ci95"], limit_fraction(verdict["workloads"])
    return (
        one.op,
        one.language,
        str(verdict["device"].get("name", "-")).removeprefix("NVIDIA "),
        "-" if score is None or ends is None else _gain(score, ends),
        sizes[0] if sizes else "-",
        sizes[-1] if sizes else "-",
        ", ".join(slower) or "-",
        "-" if share is None else f"{share * 100:.0f} %",
        host_cost(verdict),
    )


def _least(item: WorkloadVerdict) -> tuple[float, Sequence[float]]:
    """Return the speed-up over a workload's fastest baseline, and its interval."""
    fastest = min(item["speedup"], key=lambda name: item["speedup"][name])
    return item["speedup"][fastest], item["ci95"][fastest]


def _gain(value: float, ends: Sequence[float]) -> str:
    """Return a speed-up with its interval."""
    return f"{value:.2f}x [{ends[0]:.2f}, {ends[1]:.2f}]"


def left_out(shown: Sequence[Shown]) -> list[str]:
    """Say of each expert that was no baseline on a workload why."""
    return [
        f"{one.op} {item['id']}: {name} {reason}"
        for one in shown
        if one.verdict is not None
        for item in one.verdict["workloads"]
        for name, reason in item.get("not_timed", {}).items()
        if name not in PYTORCH_BASELINES
    ]


def told(shown: Sequence[Shown]) -> str:
    """Return devices and versions of the verdicts, and the packages of their experts, each once."""
    of = {
        f"{one.verdict['device'].get('name', 'no device')}; "
        + ", ".join(f"{name} {version}" for name, version in sorted(one.verdict["versions"].items()))
        for one in shown
        if one.verdict is not None
    }
    packages = {
        f"{name}: {', '.join(f'{package} {version}' for package, version in found.items())}"
        for one in shown
        if one.verdict is not None
        for name, found in one.verdict.get("experts", {}).items()
        if found
    }
    return "\n".join([*sorted(of), *sorted(packages)])


if __name__ == "__main__":
    sys.exit(main())
