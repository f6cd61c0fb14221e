"""Compile whole networks of KernelBench with `warpsmith.optimize`: which load, agree with themselves, and gain.

    python -m benchmarks.kernelbench_models PROBLEM ... [--only TEXT] [--mode MODE] [--seconds S] [--limit S]
                                            [--together N] [--within S] [--json FILE [--resume]]
                                            [--weights-at-random] [--dtype DTYPE]

PROBLEM is a file in KernelBench's form (`Model`, `get_inputs`, `get_init_inputs`) or a directory of them, such as
`KernelBench/level3` of a checkout. Problems of level 4 load models from a hub by their names; with --weights-at-random
they load none, and have the published sizes (`benchmarks.published`). Each runs in a process of its own, on a GPU where
there is one, in the dtypes of its own inputs or, where DTYPE is given, with its floats in that.

graphs      1: compiled as a whole; more: what Dynamo cannot capture breaks it
masks       of attention that no input decides, taken out, of all
kernels     places that kernels which ship have taken, of those found
agrees      results, buffers and arguments written to, against the model itself and float64: yes, NO, or "as compile"
            where those of torch.compile in the same mode do not agree either
ms          of torch.compile in the same mode; of warpsmith.optimize; both timed in turns
over        the first over the second, with the 95 % interval of their ratio

With --together N problems are loaded, compiled and compared at the same time, and timed one after the other once all
of them are ready: compiling keeps processors busy and not the GPU, whose memory has to hold all of them. One that finds
too little memory beside others has no row then, and runs alone after all of them. What a kernel brings in its place is
then decided beside other work; the times of whole models are not.

Each row is told, and in FILE, as soon as it is had; with --within no problem is begun after so many seconds, and with
--resume those that have a row in FILE are not measured again. Exits with 1 where a model that loads and runs does not
agree and torch.compile's results do.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Any

from benchmarks import published
from benchmarks.rows import reason
from benchmarks.rows import write as keep
from benchmarks.showcase import columns

LIMIT_S = 600.0
TIMED_S = 60.0
"""Of a problem's last part beside the timing: calls that tell whether its graph gains by its kernels."""
NO_ANSWER = "no answer"
NO_MEMORY = ("OutOfMemoryError", "out of memory", "ALLOC_FAILED")
"""What PyTorch's allocator, CUDA and its libraries say of a GPU's memory that is full."""
READY = "ready"
COMPILE, WARPSMITH = "compile", "warpsmith"
DTYPES = ("float32", "bfloat16", "float16")


@dataclass
class Row:
    """One problem. `error` says what failed, and in which step: load, run, compile; the rest is then None.

    disagreement: where results do not agree, the figures of both, by COMPILE and WARPSMITH.
    """

    problem: str
    error: str = ""
    graphs: int | None = None
    masks: tuple[int, int] | None = None
    kernels: tuple[int, int] | None = None
    agrees: bool | None = None
    compile_ms: float | None = None
    warpsmith_ms: float | None = None
    over: float | None = None
    ci95: tuple[float, float] | None = None
    disagreement: dict[str, dict[str, Any]] | None = None

    @property
    def outcome(self) -> str:
        """What the table says of the results of a problem that has no error."""
        if self.agrees:
            return "yes"
        return "NO" if self.disagreement is None or self.disagreement[COMPILE]["agrees"] else "as compile"


@dataclass(frozen=True)
class Plan:
    """How a problem is measured.

    mode: Inductor's; None: its default. seconds: of timing. at_random: weights of a hub are drawn and not loaded.
    dtype: of weights and inputs that are floats, by its name; None: their own.
    """

    mode: str | None = None
    seconds: float = 5.0
    at_random: bool = False
    dtype: str | None = None

    def words(self) -> list[str]:
        """Return the options that say so to a problem's process."""
        words = ["--seconds", str(self.seconds), *(["--mode", self.mode] if self.mode else [])]
        words += ["--dtype", self.dtype] if self.dtype else []
        return [*words, *(["--weights-at-random"] if self.at_random else [])]


def measure(file: Path, plan: Plan, turn: Callable[[], None] = lambda: None) -> Row:
    """Return a problem's row, measured in this process. `turn` returns when its models may be timed."""
    import torch  # noqa: PLC0415 - the parent has no need of it

    import warpsmith  # noqa: PLC0415 - as above
    from warpsmith.workers.judge.clock.timing import ratio_with_interval  # noqa: PLC0415 - as above
    from warpsmith.workers.optimize.compiled import choice, comparing, trial, turns  # noqa: PLC0415 - as above
    from warpsmith.workers.optimize.compiled.inputs import Inputs  # noqa: PLC0415 - as above

    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    step = "load"
    try:
        torch.manual_seed(0)
        with published.at_random(device.type) if plan.at_random else contextlib.nullcontext():
            problem = _loaded(file)
            model = problem.Model(*problem.get_init_inputs()).eval().to(device)
        inputs = [each.to(device) if isinstance(each, torch.Tensor) else each for each in problem.get_inputs()]
        if plan.dtype is not None:
            dtype = getattr(torch, plan.dtype)
            model = model.to(dtype)
            floats = [isinstance(each, torch.Tensor) and each.is_floating_point() for each in inputs]
            inputs = [each.to(dtype) if is_float else each for each, is_float in zip(inputs, floats, strict=True)]
        step = "run"
        with torch.no_grad():
            model(*inputs)
        step = "compile"
        fast = warpsmith.optimize(model, mode=plan.mode)
        compared, disagreement = fast.compare(*inputs), None
        if device.type == "cuda":
            torch.cuda.empty_cache()  # of the run in float64, which problems beside this one have room for
        other = torch.compile(model, mode=plan.mode)
        if not compared.agrees:
            given = Inputs(tuple(inputs), {})
            before, exact = comparing.run(model, given), comparing.exact(model, given)
            theirs = comparing.compare(before, comparing.run(model, given, other), exact)
            disagreement = {WARPSMITH: compared.document(), COMPILE: theirs.document()}
        calls: dict[str, Callable[..., Any]] = {COMPILE: other, WARPSMITH: fast}
        with torch.no_grad():
            for call in calls.values():
                call(*inputs)
            if device.type == "cuda":
                torch.cuda.synchronize()
            turn()
            for _ in range(trial.MOST_CALLS):  # whether a graph gains by its kernels is told by calls
                if fast.settled:
                    break
                fast(*inputs)
            samples = turns.time_in_turns(
                {name: (lambda call=call: lambda: call(*inputs)) for name, call in calls.items()},  # type: ignore[misc]
                device,
                plan.seconds,
            )
    except Exception as error:  # noqa: BLE001 - code of others: what it raises is the row
        return Row(file.stem, f"{step}: {reason(error)}")
    ratio, interval = ratio_with_interval(samples[COMPILE], samples[WARPSMITH], 0)
    ms = {name: statistics.median(times) / 1e3 for name, times in samples.items()}
    masks = [mask for graph in fast.graphs for mask in graph.masks]
    places = [place for graph in fast.graphs for place in graph.places]
    return Row(
        file.stem,
        graphs=len(fast.graphs),
        masks=(sum(bool(mask.means) for mask in masks), len(masks)),
        kernels=(sum(not place.why for place in places), len(places)),
        agrees=compared.agrees,
        compile_ms=ms[COMPILE],
        warpsmith_ms=ms[WARPSMITH],
        over=ratio,
        ci95=interval if len(samples[COMPILE]) >= choice.FEWEST_ROUNDS else None,
        disagreement=disagreement,
    )


def _loaded(file: Path) -> Any:
    specification = importlib.util.spec_from_file_location(f"problem_{file.stem}", file)
    assert specification is not None
    assert specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    sys.modules[specification.name] = module
    specification.loader.exec_module(module)
    return module


def measure_apart(files: Sequence[Path], plan: Plan, limit_s: float) -> Iterator[Row]:
    """Yield the problems' rows: each in a process of its own, which has so many seconds until it is to be timed.

    All compile at once, and are timed in turn when the last of them is ready.
    """
    with contextlib.ExitStack() as stack:
        begun = time.monotonic()
        running = [stack.enter_context(_Process(file, plan, len(files))) for file in files]
        for each in running:
            each.wait(limit_s - (time.monotonic() - begun))
        for each in running:
            yield each.row(limit_s, plan.seconds + TIMED_S)


class _Process:
    """One problem's process, which says when it is ready and then waits for its turn."""

    def __init__(self, file: Path, plan: Plan, number: int) -> None:
        self.file = file
        threads = (
            {} if number == 1 else {"TORCHINDUCTOR_COMPILE_THREADS": str(max(1, 2 * (os.cpu_count() or 1) // number))}
        )
        self.errors: IO[str] = tempfile.TemporaryFile("w+")  # noqa: SIM115 - closed with the process
        self.child = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.kernelbench_models", "--one", str(file), *plan.words()],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.errors,
            text=True,
            cwd=Path(__file__).resolve().parents[1],
            env=os.environ | threads,
        )
        self.said, self.is_late = "", False
        self.reader = threading.Thread(target=self._read_line, daemon=True)
        self.reader.start()

    def _read_line(self) -> None:
        assert self.child.stdout is not None
        for line in self.child.stdout:  # a problem may print, too
            self.said = line.strip()
            if self.said == READY:
                break

    def wait(self, seconds: float) -> None:
        """Return when it is ready or has ended; end it after so many seconds, lest it disturb the timing of others."""
        self.reader.join(max(0.0, seconds))
        if self.reader.is_alive():
            self.is_late = True
            self.child.kill()

    def row(self, limit_s: float, timed_s: float) -> Row:
        """Let it time its models, for so many seconds at most, and return its row; an error's where there is none."""
        if self.is_late:
            return Row(self.file.stem, f"{NO_ANSWER} in {limit_s:.0f} s")
        try:
            rest = self.child.communicate("\n" if self.said == READY else None, timeout=timed_s)[0]
        except subprocess.TimeoutExpired:
            return Row(self.file.stem, f"{NO_ANSWER} in {timed_s:.0f} s of timing")
        try:
            return _read(json.loads((rest or self.said).splitlines()[-1]))
        except (IndexError, ValueError, TypeError, KeyError):
            self.errors.seek(0)
            last = (self.errors.read().strip().splitlines() or [""])[-1][:120]
            return Row(self.file.stem, f"the process ended with {self.child.returncode}: {last}")

    def __enter__(self) -> _Process:
        return self

    def __exit__(self, *_: object) -> None:
        self.child.kill()
        self.child.wait()
        self.reader.join()
        for stream in (self.child.stdin, self.child.stdout, self.errors):
            if stream is not None:
                with contextlib.suppress(OSError):  # a pipe whose reader has ended
                    stream.close()


def _my_turn() -> None:
    print(READY, flush=True)
    sys.stdin.readline()


def _read(document: dict[str, Any]) -> Row:
    pairs = {name: None if document[name] is None else tuple(document[name]) for name in ("masks", "kernels", "ci95")}
    return Row(**(document | pairs))


HEAD = ["problem", "graphs", "masks", "kernels", "agrees", "compile ms", "warpsmith ms", "over", "95 %"]


def shown(row: Row) -> list[str]:
    """Return a row's cells."""
    if row.error:
        return [row.problem, row.error, *[""] * (len(HEAD) - 2)]
    interval = "-" if row.ci95 is None else f"{row.ci95[0]:.3f} to {row.ci95[1]:.3f}"
    counts = ["{} of {}".format(*pair) for pair in (row.masks, row.kernels) if pair is not None]
    times = [f"{row.compile_ms:.3f}", f"{row.warpsmith_ms:.3f}", f"{row.over:.3f}x"]
    return [row.problem, str(row.graphs), *counts, row.outcome, *times, interval]


def table(rows: Sequence[Row]) -> str:
    """Return the rows as text, with a line that counts them."""
    good = [row for row in rows if not row.error]
    gained = sum(row.ci95 is not None and row.ci95[0] > 1 for row in good)
    lost = sum(row.ci95 is not None and row.ci95[1] < 1 for row in good)
    said = (
        f"{len(rows)} problems: {len(good)} load, run and compile, {sum(row.graphs == 1 for row in good)} as a whole; "
    )
    outcomes = [row.outcome for row in good]
    said += f"{outcomes.count('yes')} agree, {outcomes.count('as compile')} no less than torch.compile's"
    said += f"; {gained} surely gain, {lost} surely lose"
    failed = [f"{row.problem}  {row.error}" for row in rows if row.error]  # below: a message would widen a column
    return "\n".join([columns([HEAD, *map(shown, good)]), *failed, said])


def read(file: Path) -> list[Row]:
    """Return the rows of a file that was kept; none where there is no such file. Raises ValueError for another file."""
    try:
        return [_read(document) for document in json.loads(file.read_text("utf-8"))] if file.is_file() else []
    except (ValueError, TypeError, KeyError) as error:
        raise ValueError(f"{file}: found {reason(error)}, expected rows of an earlier run") from error


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.kernelbench_models", description="Networks of KernelBench under warpsmith.optimize."
    )
    parser.add_argument(
        "problems",
        nargs="*",
        type=Path,
        metavar="PROBLEM",
        help="files or directories of problems in KernelBench's form",
    )
    parser.add_argument("--only", metavar="TEXT", default="", help="problems whose name has this")
    parser.add_argument("--mode", help="Inductor's mode; default: its own default")
    parser.add_argument("--seconds", type=float, default=5.0, help="of timing a problem; default: %(default)s")
    parser.add_argument(
        "--limit", type=float, default=LIMIT_S, help="seconds for a problem in all; default: %(default)s"
    )
    parser.add_argument(
        "--together", type=int, metavar="N", default=1, help="problems that compile at once; default: %(default)s"
    )
    parser.add_argument("--within", type=float, metavar="S", help="seconds after which no problem is begun")
    parser.add_argument("--json", metavar="FILE", type=Path, help="also write every row here")
    parser.add_argument("--resume", action="store_true", help="leave out problems that have a row in FILE")
    parser.add_argument(
        "--weights-at-random", action="store_true", help="models of a hub by published sizes, without a network"
    )
    parser.add_argument("--dtype", choices=DTYPES, help="of weights and inputs that are floats; default: their own")
    parser.add_argument("--one", type=Path, help=argparse.SUPPRESS)
    return parser


def main() -> int:
    """Print the table; returns the exit status."""
    parser = _parser()
    options = parser.parse_args()
    plan = Plan(options.mode, options.seconds, options.weights_at_random, options.dtype)
    if options.one is not None:
        print(json.dumps(asdict(measure(options.one, plan, _my_turn))))
        return 0
    files = [file for each in options.problems for file in (sorted(each.glob("*.py")) if each.is_dir() else [each])]
    files = [file for file in files if options.only.lower() in file.name.lower()]
    if not files:
        parser.error(f"argument PROBLEM: found none in {options.problems}, expected Python files")
    if options.together < 1:
        parser.error(f"argument --together: found {options.together}, expected a number of 1 or more")
    if options.resume and options.json is None:
        parser.error("argument --resume: found no --json FILE, expected one")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that a problem's process is ended, too
    begun = time.monotonic()
    try:
        rows = read(options.json) if options.resume else []
    except ValueError as error:
        parser.error(f"argument --json: {error}")
    had = {row.problem for row in rows}
    files = [file for file in files if file.stem not in had]
    batches = [files[at : at + options.together] for at in range(0, len(files), options.together)]
    while batches:
        batch = batches.pop(0)
        spent = time.monotonic() - begun
        if options.within is not None and spent >= options.within:
            print(f"{batch[0].stem} and those behind it: not begun, {spent:.0f} s are over", file=sys.stderr)
            break
        left = options.limit if options.within is None else min(options.limit, options.within - spent)
        for file, row in zip(batch, measure_apart(batch, plan, left), strict=True):
            if left < options.limit and row.error.startswith(NO_ANSWER):
                print(f"{row.problem}: no row, the time is over", file=sys.stderr)
                continue
            if len(batch) > 1 and any(words in row.error for words in NO_MEMORY):
                print(f"{row.problem}: too little memory beside others, it runs alone", file=sys.stderr)
                batches.append([file])
                continue
            rows.append(row)
            print("  ".join(filter(None, shown(row))), file=sys.stderr, flush=True)
            if options.json:
                keep(options.json, rows)
    print(table(rows))
    return 1 if any(not row.error and row.outcome == "NO" for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
