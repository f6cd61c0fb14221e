"""Measure how long a model takes to its first call: `python -m benchmarks.models --compile`.

Each variant is compiled in a process of its own with empty caches of its own (Inductor's, Triton's and Warpsmith's),
or in as many as `--empty` says, then in further processes that have the caches of the last: one, or as many as `--warm`
says, the variants in turns. Tables then have the median. Seconds to the first call are by the clock, from before
`torch.compile` or `warpsmith.optimize` is called, `torch` and `transformers` imported and the model built, until the
results of the first call are there; to the third call, which replays the CUDA graph that the second records. A process
with empty caches goes on until it is told whether kernels gain, as whoever serves a model would. A variant that fails
is told, with the reason, and the others go on.

A second table has the seconds of the first call in parts that follow one another (`PARTS`), the process's own seconds
on its CPUs beside them, and the hits of AOTAutograd's cache and of Inductor's. What torch.compile imports while it
wraps the model, `warpsmith.optimize` imports in the backend, so these two parts are to be read together.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

import torch

from benchmarks import models, rows
from benchmarks.model_cases import CASES, Case, Session, missing, wait
from benchmarks.showcase import ROOT, columns
from warpsmith.workers.optimize.compiled.handle import Optimized

CACHES = {"TORCHINDUCTOR_CACHE_DIR": "inductor", "TRITON_CACHE_DIR": "triton", "WARPSMITH_KERNEL_CACHE": "own/kernels"}
"""Variables that name caches, by their directory in that of a variant."""
LIMIT_S = 600.0
"""Of one process."""
TOLD_S = {"empty": 0.5, "warm": 0.05}
"""Seconds of a phase that is told, at least, by what the caches have."""
PARTS = ("wrapping", "tracing", "backend", "guards", "running")
"""Parts of a first call, one after the other: until the model is wrapped, Dynamo's tracing, what compiles or loads a
graph, the rest of Dynamo (guards above all), and what is left: the call itself, in which kernels are loaded."""
HITS = {"AOTAutograd": ("aot_autograd", "autograd_cache_hit"), "Inductor": ("inductor", "fxgraph_cache_hit")}
"""PyTorch's counters of graphs that its caches had."""
BURSTS = 5
"""Of which the fastest tells what a call takes: a sanity check, and no measurement."""


@dataclass(frozen=True)
class Start:
    """How a process compiled a variant.

    caches: "empty" or "warm"; first_s, third_s: seconds to the results of that call; ms: of a later call; cpu_s: of the
    process on its CPUs until the first; parts: seconds of the first call by PARTS; hits: by HITS; phases: seconds by
    what PyTorch and Warpsmith call a phase of compiling, one within another.
    """

    case: str
    variant: str
    caches: str
    first_s: float
    third_s: float
    ms: float
    phases: dict[str, float]
    report: list[str]
    cpu_s: float
    parts: dict[str, float]
    hits: dict[str, int]


@dataclass(frozen=True)
class Failed:
    """A variant without figures, or a case ("" for the variant), with the reason."""

    case: str
    variant: str
    why: str


class ChildFailed(RuntimeError):  # noqa: N818 - named for what happened
    """A process that compiles a variant ended without its figures."""

    def __init__(self, case: Case, variant: str, why: str) -> None:
        super().__init__(f"{case.name}: {variant}: {why}")
        self.variant = variant


def measure(
    case: Case, variants: Sequence[str], kernels: Sequence[str] | None, empty: int = 1, warm: int = 1
) -> Iterator[Start | ChildFailed]:
    """Yield how each variant of a case starts: with empty caches, then with those of the last such turn.

    empty, warm: how many turns, at least one. A variant that fails is yielded as its error, and starts no more.
    """
    left = list(variants)
    with tempfile.TemporaryDirectory(prefix="warpsmith-compile-") as directory:
        for turn in range(empty + warm):
            caches = "empty" if turn < empty else "warm"
            for at, variant in enumerate(variants):
                if variant not in left:
                    continue
                try:
                    yield _started(case, variant, caches, kernels, Path(directory, f"{at}-{min(turn, empty - 1)}"))
                except ChildFailed as error:
                    left.remove(variant)
                    yield error


def _started(case: Case, variant: str, caches: str, kernels: Sequence[str] | None, directory: Path) -> Start:
    command = [sys.executable, "-m", "benchmarks.model_compile", "--case", case.name, "--variant", variant]
    command += [part for each in kernels or () for part in ("--kernels", each)]
    own = {name: str(directory / place) for name, place in CACHES.items()}
    try:
        ran = subprocess.run(
            command, env=os.environ | own, cwd=ROOT, capture_output=True, text=True, timeout=LIMIT_S, check=False
        )
    except subprocess.TimeoutExpired:
        raise ChildFailed(case, variant, f"found no end after {LIMIT_S:.0f} s") from None
    if ran.returncode:
        raise ChildFailed(case, variant, f"exit status {ran.returncode}\n{ran.stderr[-4000:]}")
    try:
        figures = json.loads(ran.stdout.splitlines()[-1])
    except (IndexError, ValueError):
        raise ChildFailed(case, variant, f"exit status 0, and no figures\n{ran.stderr[-4000:]}") from None
    return Start(case.name, variant, caches, **figures)


def raised(text: str) -> str:
    """Return how a process ended and why: the error that its last traceback names, or its last line."""
    lines = [line for line in text.splitlines() if line.strip()]
    ended = re.search(r"exit status -?\d+.*$", lines[0])
    traced = [at for at, line in enumerate(lines) if line.startswith("Traceback")]
    named = [line for line in lines[traced[-1] + 1 :] if _NAMED.match(line)] if traced else []
    told = named[-1] if named else lines[-1].strip()
    return (f"{ended[0]}: {told}" if ended and len(lines) > 1 else told)[: rows.REASON]


_NAMED = re.compile(r"[A-Za-z_][\w.]*(:|$)")


def run(
    cases: Sequence[Case],
    variants: Sequence[str],
    kernels: Sequence[str] | None,
    file: Path | None,
    *,
    empty: int = 1,
    warm: int = 1,
) -> int:
    """Measure the cases, print how their variants start and write it to a file of JSON; returns the exit status."""
    had: list[Start | Failed] = []
    status = 0

    def keep(row: Start | Failed) -> None:
        had.append(row)
        if file is not None:
            rows.write(file, had)

    for case in cases:
        if (why := missing(case)) is not None:
            print(f"\n{case.name} is left out: {why}", flush=True)
            keep(Failed(case.name, "", why))
            continue
        found: list[Start] = []
        for each in measure(case, variants, kernels, empty, warm):
            if isinstance(each, ChildFailed):
                print(each, file=sys.stderr, flush=True)
                keep(Failed(case.name, each.variant, raised(str(each))))
                status = 1
                continue
            found.append(each)
            keep(each)
            print(f"{case.name}: {told(each)}", file=sys.stderr, flush=True)
        middle = medians(found)
        print(f"\n{case.name}\n{columns(table(middle, variants[0]))}\n\n{columns(parts_table(middle))}", flush=True)
        for each in found:
            print("\n".join([told(each), *(f"  {line}" for line in each.report)]), flush=True)
        for row in had:
            if isinstance(row, Failed) and row.case == case.name:
                print(f"{row.variant} failed: {row.why}", flush=True)
    return status


def medians(starts: Sequence[Start]) -> list[Start]:
    """Return one start for each variant and state of its caches, as they come: each figure is the median of theirs."""
    alike: dict[tuple[str, str], list[Start]] = {}
    for start in starts:
        alike.setdefault((start.variant, start.caches), []).append(start)
    return [_middle(each) for each in alike.values()]


def _middle(starts: Sequence[Start]) -> Start:
    figures = {name: median(getattr(start, name) for start in starts) for name in ("first_s", "third_s", "ms", "cpu_s")}
    parts = {part: median(start.parts[part] for start in starts) for part in PARTS}
    hits = {name: min(start.hits[name] for start in starts) for name in HITS}
    return replace(starts[0], parts=parts, hits=hits, **figures)


def table(starts: Sequence[Start], beside: str) -> list[list[str]]:
    """Lay out how the variants of a case start, with ratios to the variant `beside` where that started."""
    cells = [["variant", "caches", "first call", f"of {beside}", "third call", f"of {beside}", "a call"]]
    own = {start.caches: start for start in starts if start.variant == beside}
    for start in starts:
        base = own.get(start.caches)
        ratios = ["-", "-"]
        if base is not None:
            ratios = [f"{start.first_s / base.first_s:.2f}x", f"{start.third_s / base.third_s:.2f}x"]
        times = [f"{start.first_s:.1f} s", ratios[0], f"{start.third_s:.1f} s", ratios[1], f"{start.ms:.3f} ms"]
        cells.append([start.variant, start.caches, *times])
    return cells


def parts_table(starts: Sequence[Start]) -> list[list[str]]:
    """Lay out the parts of each first call, and how many graphs PyTorch's caches had."""
    cells = [["variant", "caches", *PARTS, "on CPUs", *(f"{name} hits" for name in HITS)]]
    for start in starts:
        seconds = [*(start.parts[part] for part in PARTS), start.cpu_s]
        hits = [str(start.hits[name]) for name in HITS]
        cells.append([start.variant, start.caches, *(f"{each:.2f} s" for each in seconds), *hits])
    return cells


def parts_of(first_s: float, wrapped_s: float, phases: Mapping[str, float]) -> dict[str, float]:
    """Return the seconds of a first call by PARTS. wrapped_s: until the model was wrapped."""
    whole = phases.get("_compile.compile_inner", 0.0)
    tracing, backend = phases.get("bytecode_tracing", 0.0), phases.get("OutputGraph.call_user_compiler", 0.0)
    seconds = (wrapped_s, tracing, backend, whole - tracing - backend, first_s - wrapped_s - whole)
    return dict(zip(PARTS, seconds, strict=True))


def told(start: Start) -> str:
    """Say where a start's seconds went; phases lie within one another."""
    longest = sorted(start.phases.items(), key=lambda each: -each[1])
    digits = 1 if start.caches == "empty" else 2
    parts = ", ".join(f"{name} {seconds:.{digits}f}" for name, seconds in longest if seconds >= TOLD_S[start.caches])
    return f"{start.variant}, caches {start.caches}: first call {start.first_s:.1f} s; {parts or 'no phase is long'}"


def start(case: Case, variant: str, kernels: Sequence[str] | None, device: torch.device) -> dict[str, Any]:
    """Compile a variant in this process and return what a Start has beside its names."""
    from torch._dynamo.utils import compilation_time_metrics, counters  # noqa: PLC0415 - private: here alone

    session = Session(case, device)
    cache = session.fresh(session.model)
    wait(device)
    begun, begun_cpu = time.perf_counter(), time.process_time()
    call = models.variant(session.model, variant, kernels)
    wrapped_s = time.perf_counter() - begun
    session.call(call, cache)
    wait(device)
    first_s, cpu_s = time.perf_counter() - begun, time.process_time() - begun_cpu
    phases = {name: sum(seconds) for name, seconds in compilation_time_metrics.items()}
    hits = {name: counters[group][counter] for name, (group, counter) in HITS.items()}
    for _ in range(2):
        session.call(call, cache)
    wait(device)
    third_s = time.perf_counter() - begun
    session.settle(call, cache)
    ms = min(session.burst_ms(call, cache) for _ in range(BURSTS))
    report = call.report().splitlines() if isinstance(call, Optimized) else []
    figures = {"first_s": first_s, "third_s": third_s, "ms": ms, "phases": phases, "report": report}
    return figures | {"cpu_s": cpu_s, "parts": parts_of(first_s, wrapped_s, phases), "hits": hits}


def main() -> None:
    """Compile one variant, and print what is told of it as a line of JSON."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.model_compile", description=__doc__)
    parser.add_argument("--case", required=True, choices=[case.name for case in CASES])
    parser.add_argument("--variant", required=True)
    parser.add_argument("--kernels", action="append")
    arguments = parser.parse_args()
    case = next(case for case in CASES if case.name == arguments.case)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    with torch.no_grad():
        found = start(case, arguments.variant, arguments.kernels, device)
    print(json.dumps(found))


if __name__ == "__main__":
    main()
