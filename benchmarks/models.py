"""Measure whole models under `warpsmith.optimize`, beside PyTorch's own compilers.

    python -m benchmarks.models [--only NAME ...] [--modes MODE,...] [--against MODE,...] [--kernels DIR ...]
                                [--without NAME,... ...] [--json FILE]
                                [--seconds S [--profile] | --compile [--empty N] [--warm N]]

Classes of `transformers` and `diffusers` as they are and the DLRM of `benchmarks.dlrm`, with weights drawn at random,
in bfloat16 on a GPU (tiny ones on a CPU, which show the way and no gain); and the samples of `examples/models`, in
float32 as they are: `benchmarks.model_cases`. The variants of a model run in turns:

MODE                torch.compile(model, mode=MODE), for those of `--against` as well
rewrites, MODE      warpsmith.optimize without kernels: masks that no input decides are taken out, repeated keys and
                    values shared, tables of sines computed once
warpsmith, MODE     warpsmith.optimize with kernels, those that ship or those of `--kernels`
without NAME, MODE  the same without one of the rewrites behind kernels, or several (`rewriting.LAST`), for each
                    `--without`: what `warpsmith, MODE` gains by them

A call's time is that of a burst of calls by the clock, from an idle device to an idle device. Ratios are over the
faster of PyTorch's own, with their 95 % interval. error: the relative L2 error of the results against the model in
float32 (in float64 where it is in float32 itself), and eager's own; a decode step is compared after several, from a
fresh cache, with the cache that they left. A mixture of experts chooses them by numbers that rounding changes, so two
of its errors may differ by an expert that one of them chose: over many tokens (prefill, batch 8) they can be compared.

A case whose package is not installed is left out, and the row says so. A case or a variant that fails (out of memory)
has a row that says why, the others go on, and the exit status is 1. FILE has every row as soon as it is had.

With --profile it is told on a GPU where the time of `warpsmith, MODE` goes (`benchmarks.model_where`).

With --compile it is measured instead how long each of PyTorch's own and of `warpsmith, MODE` takes to its first call:
`benchmarks.model_compile`.
"""

from __future__ import annotations

import argparse
import copy
import gc
import math
import random
import statistics
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import torch

import warpsmith
from benchmarks import model_where, rows
from benchmarks.model_cases import CASES, PROMPT, STEPS, Call, Case, Session, floats_of, missing, wait
from benchmarks.showcase import columns
from warpsmith.workers.judge.clock.timing import Plan, interleave, ratio_with_interval
from warpsmith.workers.optimize.compiled.handle import Optimized
from warpsmith.workers.optimize.compiled.rewriting import LAST

COPY_BYTES = 1 << 30
MOST_ROUNDS = 1001
"""Rounds of timing variants in turns: a noisy card needs all that its seconds allow."""
EAGER, REWRITES, KERNELS, WITHOUT = "eager", "rewrites, ", "warpsmith, ", "without "


@dataclass
class Row:
    """A variant's figures: milliseconds a call, the ratio over the faster of PyTorch's own, and errors.

    why: the reason where there are none. skipped: and nothing failed, for its package is not here.
    """

    case: str
    variant: str
    ms: float | None = None
    ratio: float | None = None
    ci95: tuple[float, float] | None = None
    compile_s: float | None = None
    error: float | None = None
    eager_error: float | None = None
    cache_difference: float | None = None
    report: list[str] = field(default_factory=list)
    where: list[str] = field(default_factory=list)
    why: str = ""
    skipped: bool = False


def variant(model: Any, name: str, kernels: Sequence[str] | None) -> Call:
    """Return a model as a variant calls it; nothing is compiled before its first call."""
    if name == EAGER:
        return cast("Call", model)
    if name.startswith(REWRITES):
        return warpsmith.optimize(model, mode=name.removeprefix(REWRITES), kernels=[])
    if name.startswith(KERNELS):
        return warpsmith.optimize(model, mode=name.removeprefix(KERNELS), kernels=kernels)
    if name.startswith(WITHOUT):
        return variant(model, KERNELS + name.rpartition(", ")[2], kernels)
    return torch.compile(model, mode=name)


def variants(modes: Sequence[str], without: Sequence[str]) -> list[str]:
    """Return the names of `warpsmith.optimize`'s variants."""
    kinds = (REWRITES, KERNELS, *(f"{WITHOUT}{out}, " for out in without))
    return [kind + mode for mode in modes for kind in kinds]


@contextmanager
def rewriting(name: str) -> Iterator[None]:
    """Inside, models are compiled with the rewrites of a variant."""
    out = name.removeprefix(WITHOUT).rpartition(", ")[0].split(",") if name.startswith(WITHOUT) else []
    kept = dict(LAST)
    try:
        for each in out:
            del LAST[each]
        yield
    finally:
        LAST.clear()
        LAST.update(kept)


def measure(
    case: Case,
    device: torch.device,
    modes: Sequence[str],
    against: Sequence[str],
    kernels: Any,
    seconds: float,
    without: Sequence[str] = (),
    *,
    profiled: bool,
) -> Iterator[Row]:
    """Yield the rows of a case: first of the variants that fail, then of the others. Raises what the model raises."""
    session = Session(case, device)
    model = session.model
    exact = _exact(session)
    eager_cache = session.fresh(model)
    eager_error = error_of(session.steps(model, eager_cache), exact)
    calls: dict[str, Call] = {}
    caches, found, compiled_in = {}, {}, {}
    for name in [EAGER, *against, *variants(modes, without)]:
        call: Any = None
        cache: Any = None
        try:
            cache = session.fresh(model)
            call = variant(model, name, kernels)
            begun = time.perf_counter()
            with rewriting(name):
                for _ in range(3):  # a CUDA graph is recorded in the second call
                    session.call(call, cache)
            wait(device)
            compiled_in[name] = time.perf_counter() - begun
            session.settle(call, cache)
            found[name], caches[name], calls[name] = session.steps(call, cache), cache, call
        except Exception as error:  # noqa: BLE001 - a compiler's: what it raises is the row
            why = rows.reason(error)
        else:
            print(f"{case.name}: {name}: compiled in {compiled_in[name]:.0f} s", file=sys.stderr, flush=True)
            continue
        call = cache = None  # and their memory
        release(device)
        yield Row(case.name, name, why=why)

    def block(name: str) -> float:
        return session.burst_ms(calls[name], caches[name]) * 1e3

    rng = random.Random(0)  # noqa: S311 - the order of measurements
    try:
        samples = interleave(
            list(calls), block, plan=Plan(11, MOST_ROUNDS, seconds, 1, 0.0, 0.0), candidate=None, rng=rng
        )
    except Exception as error:  # noqa: BLE001 - of one of them: which, no measurement in turns can tell
        why = f"timed in turns with {', '.join(calls)}: {rows.reason(error)}"
        for name in calls:
            yield Row(case.name, name, compile_s=compiled_in[name], why=why)
        return
    medians = {name: statistics.median(samples[name]) for name in calls}
    own = min((mode for mode in against if mode in calls), key=medians.__getitem__, default=None)
    for name, call in calls.items():
        row = Row(case.name, name, medians[name] / 1e3, compile_s=compiled_in[name])
        if own is not None:
            row.ratio, row.ci95 = ratio_with_interval(samples[own], samples[name], 0)
        row.error, row.eager_error = error_of(found[name], exact), eager_error
        if not math.isfinite(row.error):
            row.error, row.why = None, "its results are no numbers where the model's are"
        row.cache_difference = _apart(caches[name], eager_cache) if case.past and name != EAGER else None
        row.report = call.report().splitlines() if isinstance(call, Optimized) else []
        if profiled and name.startswith(KERNELS):
            session.rewind(caches[name])
            spans = model_where.spans_of(lambda: session.call(call, caches[name]), device)  # noqa: B023 - at once
            row.where = model_where.told(spans)
        yield row


def _exact(session: Session) -> torch.Tensor:
    """Return a model's results in a wider dtype, and give the memory of that model back."""
    wide = copy.deepcopy(session.model)
    wide = wide.to(torch.float64 if floats_of(wide) is torch.float32 else torch.float32)
    exact: torch.Tensor = session.steps(wide, session.fresh(wide)).double()
    del wide
    release(session.device)
    return exact


def tried(case: Case, device: torch.device, **how: Any) -> Iterator[Row]:
    """Yield the rows of a case as `measure` does, or one that says why there are none, or no more."""
    if (why := missing(case)) is not None:
        yield Row(case.name, "", why=why, skipped=True)
        return
    try:
        yield from measure(case, device, **how)
    except Exception as error:  # noqa: BLE001 - code of others: what it raises is the row
        yield Row(case.name, "", why=rows.reason(error))


def release(device: torch.device) -> None:
    """Give back memory that nobody refers to: of a case before, or of what failed."""
    gc.collect()
    if device.type == "cuda":
        torch.cuda.empty_cache()


def error_of(found: torch.Tensor, exact: torch.Tensor) -> float:
    """Return the relative L2 error of results."""
    return float((found.double() - exact).norm() / exact.norm())


def _apart(cache: Any, other: Any) -> float:
    """Return the largest relative L2 difference of two caches' tensors, over the tokens up to the compared steps."""
    pairs = [
        (getattr(mine, part), getattr(theirs, part))
        for mine, theirs in zip(cache.layers, other.layers, strict=True)
        for part in ("keys", "values")
    ]
    written = slice(PROMPT + STEPS)
    return max(error_of(mine[:, :, written], theirs[:, :, written].double()) for mine, theirs in pairs)


def copy_bandwidth(device: torch.device) -> float:
    """Return the bytes that a copy reads and writes a second."""
    source = torch.empty(COPY_BYTES, dtype=torch.uint8, device=device)
    target, times = torch.empty_like(source), []
    for _ in range(10):
        wait(device)
        begun = time.perf_counter()
        target.copy_(source)
        wait(device)
        times.append(time.perf_counter() - begun)
    return 2 * COPY_BYTES / min(times)


def main() -> int:
    """Print the table; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.models", description="Whole models, optimized.")
    parser.add_argument("--only", action="append", metavar="NAME", help="cases whose name has this; may be repeated")
    parser.add_argument(
        "--modes", default="reduce-overhead", help="some of Inductor's, by commas; default: %(default)s"
    )
    parser.add_argument(
        "--against", metavar="MODE,...", default="", help="more modes of PyTorch's own; default: those of --modes alone"
    )
    parser.add_argument(
        "--kernels", action="append", metavar="DIR", help="an exported package; default: those that ship"
    )
    parser.add_argument("--without", action="append", default=[], metavar="NAME,...", help=f"some of {', '.join(LAST)}")
    parser.add_argument("--seconds", type=float, default=20.0, help="of timing a case; default: %(default)s")
    parser.add_argument("--profile", action="store_true", help="say where the time goes, on a GPU")
    parser.add_argument("--compile", action="store_true", help="measure seconds to the first call, in own processes")
    of = "with --compile: processes with {} caches, in turns; default: %(default)s"
    parser.add_argument("--empty", metavar="N", type=int, default=1, help=of.format("empty"))
    parser.add_argument("--warm", metavar="N", type=int, default=1, help=of.format("warm"))
    parser.add_argument("--json", metavar="FILE", type=Path, help="also write every row here")
    arguments = parser.parse_args()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    cases = [case for case in CASES if any(text.lower() in case.name.lower() for text in arguments.only or [""])]
    if not cases:
        parser.error(f"argument --only: found {arguments.only}, expected a part of {'; '.join(c.name for c in CASES)}")
    for each in ",".join(arguments.without).split(",") if arguments.without else []:
        if each not in LAST:
            parser.error(f"argument --without: found {each!r}, expected some of {', '.join(LAST)}")
    for caches in ("empty", "warm"):
        if (number := getattr(arguments, caches)) < 1:
            parser.error(f"argument --{caches}: found {number}, expected at least 1")
    modes = arguments.modes.split(",")
    against = [mode for mode in dict.fromkeys([*modes, *arguments.against.split(",")]) if mode]
    named = torch.cuda.get_device_name() if device.type == "cuda" else "CPU"
    if arguments.compile:
        print(f"{named}, torch {torch.__version__}")
        from benchmarks import model_compile  # noqa: PLC0415 - it takes the cases from here

        variants = list(dict.fromkeys([*modes, *(KERNELS + mode for mode in modes), *against]))
        starts = {"empty": arguments.empty, "warm": arguments.warm}
        return model_compile.run(cases, variants, arguments.kernels, arguments.json, **starts)
    print(f"{named}, torch {torch.__version__}; a copy moves {copy_bandwidth(device) / 1e12:.2f} TB/s")
    how = {"modes": modes, "against": against, "kernels": arguments.kernels}
    how |= {"without": arguments.without, "seconds": arguments.seconds, "profiled": arguments.profile}
    had: list[Row] = []
    with torch.no_grad():
        for case in cases:
            found: list[Row] = []
            for row in tried(case, device, **how):
                found.append(row)
                if arguments.json:
                    rows.write(arguments.json, [*had, *found])
            had += found
            print("\n".join(["", case.name, *_told(found), *found[-1].report, *found[-1].where]), flush=True)
            torch.compiler.reset()
            release(device)
    return 1 if any(row.why and not row.skipped for row in had) else 0


def _told(found: Sequence[Row]) -> Iterator[str]:
    """Yield the lines of a case: a table of the variants that ran, and why the others did not."""
    head = ["variant", "ms", "over PyTorch's own", "95 %", "error", "of eager's", "cache apart", "compiled in"]
    timed = [row for row in found if row.ms is not None]
    if timed:
        yield columns([head, *map(_cells, timed)])
    for row in found:
        if row.why:
            yield f"{row.variant or 'the case'} {'is left out' if row.skipped else 'failed'}: {row.why}"


def _cells(row: Row) -> list[str]:
    ratio, interval = "-", "-"
    if row.ratio is not None and row.ci95 is not None:
        ratio, interval = f"{row.ratio:.3f}x", "{:.3f} to {:.3f}".format(*row.ci95)
    of_eager = f"{row.error / row.eager_error:.2f}x" if row.error is not None and row.eager_error else "-"
    apart = "-" if row.cache_difference is None else f"{row.cache_difference:.1e}"
    return [
        row.variant,
        f"{row.ms:.3f}",
        ratio,
        interval,
        "-" if row.error is None else f"{row.error:.2e}",
        of_eager,
        apart,
        f"{row.compile_s:.0f} s",
    ]


if __name__ == "__main__":
    sys.exit(main())
