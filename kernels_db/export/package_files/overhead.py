"""What the op costs beside its kernel: `python -m <package>.overhead [--json]`.

Microseconds of the host for one call, the median of several rounds: of the raw launch (the kernel's own `run` into
outputs that are there), of the op without gradients (guard, allocation of outputs, launch), of the same with the watch
off, of the same where no launch plan is replayed, of the op where an input needs gradients, and, as a yardstick, of
`torch.add` on two tensors like the first output (or the first argument). On a GPU launches are queued, and the device
is waited for outside of the time.

A round is timed as a whole. The command also times each call of further rounds by itself, for the spread: those times
hold the clock's own, some 0.05 us.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any, NamedTuple

import torch

from . import _control, _op, _plans, _spec, selfcheck

UNWATCHED = "op_unwatched"
UNPLANNED = "op_without_plan"
PERCENTILES = (10, 50, 90, 99)
ROUNDS = 9
ROUND_S = 0.02
MOST_QUEUED = 200
"""Launches between two waits for a GPU: its queue takes about a thousand, and a full one would be waited for."""


class Measured(NamedTuple):
    """What was found.

    microseconds: as `measure` returns them; launches: of the plan that served the op, 0 where there was none; graphs:
    replays of it, while it was compared and timed here, that were one CUDA graph; singly: microseconds of single calls
    at PERCENTILES, by the same names; between: the quartiles over the rounds of what the op took more than the launch
    in the same round.
    """

    microseconds: dict[str, float]
    launches: int
    graphs: int
    singly: dict[str, dict[str, float]]
    between: tuple[float, float]

    @property
    def is_told(self) -> bool:
        """Whether the rounds agree: more than the launch, or less where a plan spares work that the launch has."""
        low, high = self.between
        return low > 0 if self.microseconds["overhead"] > 0 else high < 0 and self.launches > 0

    def describe_overhead(self) -> str:
        """The overhead in words: no figure where it cannot be told."""
        over, raw, (low, high) = self.microseconds["overhead"], self.microseconds["raw"], self.between
        if not self.is_told:
            return (
                "cannot be told here: below what the clock can tell on this machine beside a raw launch of "
                f"{raw:.1f} us (half of the rounds found {low:.1f} to {high:.1f} us)"
            )
        if over > 0:
            return f"{over:.1f} us over the raw launch, which takes {raw:.1f} us"
        return f"none: {-over:.1f} us less than the raw launch, which takes {raw:.1f} us"


def measure() -> dict[str, float]:
    """Microseconds of `raw`, `op`, `op_unwatched`, `op_without_plan`, `add` and, where there are gradients,
    `op_with_gradients`; `overhead` is op less raw, and `ratio` op by add.

    Raises RuntimeError where no kernel serves the smallest verified workload here.
    """
    return measured().microseconds


def measured(*, singly: bool = False) -> Measured:
    """As `measure`, and by what the op was served; `singly`: calls by themselves as well."""
    before = _graphs()
    smallest = min(selfcheck.checked_here(), key=lambda workload: workload["min_bytes"])
    arguments = selfcheck.draw(smallest, 1)
    admitted = _op.admitted_call(tuple(arguments))
    if isinstance(admitted, str):
        raise RuntimeError(admitted)
    kernel = admitted.kernel.module
    gpu = admitted.device.type == "cuda"
    outputs = admitted.allocate()
    cases: dict[str, Callable[[], Any]] = {
        "raw": lambda: kernel.run(*arguments, *outputs),
        "op": lambda: _op.call(*arguments),
        UNWATCHED: lambda: _op.call(*arguments),
        UNPLANNED: lambda: _op.call(*arguments),
    }
    like = next(each for each in (*outputs, *arguments) if isinstance(each, torch.Tensor))
    one, other = torch.zeros_like(like), torch.zeros_like(like)
    cases["add"] = lambda: torch.add(one, other)
    needing = [a for a in arguments if isinstance(a, torch.Tensor) and a.is_floating_point()]
    if needing and not _spec.MUTATED:
        learned = [a.detach().requires_grad_() if a is needing[0] else a for a in arguments]
        cases["op_with_gradients"] = lambda: _op.call(*learned)
    rounds: dict[str, list[float]] = {name: [] for name in cases}
    calls: dict[str, list[float]] = {name: [] for name in cases if singly}
    _seconds(cases["op"], 10, gpu)  # the watch's first checks, and the plan
    counts = {}
    for name, case in cases.items():
        with _setting(name):
            counts[name] = _calls(case, gpu)
    for _ in range(ROUNDS):
        for name, case in cases.items():
            with _setting(name):
                rounds[name].append(_seconds(case, counts[name], gpu) / counts[name] * 1e6)
                if singly:
                    calls[name] += _each(case, counts[name], gpu)
    found = {name: round(statistics.median(times), 2) for name, times in rounds.items()}
    ratios = {"overhead": round(found["op"] - found["raw"], 2), "ratio": round(found["op"] / found["add"], 2)}
    spread = {name: _percentiles(times) for name, times in calls.items()}
    more = [op - raw for op, raw in zip(rounds["op"], rounds["raw"], strict=True)]
    return Measured(found | ratios, admitted.plans.launches, max(0, _graphs() - before), spread, _quartiles(more))


def _quartiles(values: list[float]) -> tuple[float, float]:
    """The values below and above which a quarter of `values` lies."""
    ordered = sorted(values)
    aside = len(ordered) // 4
    return round(ordered[aside], 2), round(ordered[-1 - aside], 2)


def _graphs() -> int:
    """Replays of all plans that were a CUDA graph; none are left where a replay raised."""
    launched: int = _plans.described()["graphs"]["launched"]
    return launched


def _setting(name: str) -> AbstractContextManager[None]:
    """What a case is timed under."""
    if name == UNPLANNED:
        return _plans.without()
    return _control.unwatched() if name == UNWATCHED else nullcontext()


def _calls(case: Callable[[], Any], gpu: bool) -> int:
    """How many calls make a round."""
    _seconds(case, 10, gpu)
    most = MOST_QUEUED if gpu else 1_000_000
    return min(most, max(10, int(ROUND_S / (_seconds(case, 10, gpu) / 10))))


def _seconds(case: Callable[[], Any], calls: int, gpu: bool) -> float:
    if gpu:
        torch.cuda.synchronize()
    begun = time.perf_counter()
    for _ in range(calls):
        case()
    spent = time.perf_counter() - begun
    if gpu:
        torch.cuda.synchronize()
    return spent


def _each(case: Callable[[], Any], calls: int, gpu: bool) -> list[float]:
    """Microseconds of each of these calls."""
    if gpu:
        torch.cuda.synchronize()
    clock = time.perf_counter_ns
    times = []
    for _ in range(calls):
        begun = clock()
        case()
        times.append((clock() - begun) / 1e3)
    if gpu:
        torch.cuda.synchronize()
    return times


def _percentiles(times: list[float]) -> dict[str, float]:
    cuts = statistics.quantiles(times, n=100, method="inclusive")
    return {f"p{percent}": round(cuts[percent - 1], 2) for percent in PERCENTILES}


def main() -> int:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    options = parser.parse_args()
    found = measured(singly=True)
    if options.json:
        told = {"microseconds": found.microseconds, "planned": found.launches}
        more = {"graphs": found.graphs, "singly": found.singly, "overhead_between": found.between}
        print(json.dumps({"op": _spec.NAME, "package": _spec.NAMESPACE, **told, **more}))
        return 0
    for name, microseconds in found.microseconds.items():
        each = "".join(f"{at:>6} {us:8.2f}" for at, us in found.singly.get(name, {}).items())
        print(f"{name:18} {microseconds:8.2f}{'' if name == 'ratio' else ' us'}{each and ', singly' + each}")
    print(f"{'dispatch overhead':18} {found.describe_overhead()}")
    print(f"{'planned':18} {found.launches:5}    launches{', as a CUDA graph' if found.graphs else ''}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
