"""What the op costs beside its kernel: `python -m <package>.overhead [--json]`.

Microseconds of the host for one call, the median of several rounds: of the raw launch (the kernel's own `run` into
outputs that are there), of the op without gradients (guard, allocation of outputs, launch), of the same with the watch
off, of the same where no launch plan is replayed, of the op where an input needs gradients, and, as a yardstick, of
`torch.add` on two tensors like the first output (or the first argument). On a GPU launches are queued, and the device
is waited for outside of the time.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch

from . import _control, _op, _plans, _spec, selfcheck

UNWATCHED = "op_unwatched"
UNPLANNED = "op_without_plan"
ROUNDS = 9
ROUND_S = 0.02
MOST_QUEUED = 200
"""Launches between two waits for a GPU: its queue takes about a thousand, and a full one would be waited for."""


def measure() -> dict[str, float]:
    """Microseconds of `raw`, `op`, `op_unwatched`, `op_without_plan`, `add` and, where there are gradients,
    `op_with_gradients`; `overhead` is op less raw, and `ratio` op by add.

    Raises RuntimeError where no kernel serves the smallest verified workload here.
    """
    return measured()[0]


def measured() -> tuple[dict[str, float], int]:
    """As `measure`, and how many launches the plan has that served the op; 0 where there was none."""
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
    _seconds(cases["op"], 10, gpu)  # the watch's first checks, and the plan
    counts = {}
    for name, case in cases.items():
        with _setting(name):
            counts[name] = _calls(case, gpu)
    for _ in range(ROUNDS):
        for name, case in cases.items():
            with _setting(name):
                rounds[name].append(_seconds(case, counts[name], gpu) / counts[name] * 1e6)
    found = {name: round(statistics.median(times), 2) for name, times in rounds.items()}
    ratios = {"overhead": round(found["op"] - found["raw"], 2), "ratio": round(found["op"] / found["add"], 2)}
    return found | ratios, admitted.plans.launches


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


def main() -> int:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    options = parser.parse_args()
    found, launches = measured()
    if options.json:
        print(json.dumps({"op": _spec.NAME, "package": _spec.NAMESPACE, "microseconds": found, "planned": launches}))
    else:
        for name, microseconds in found.items():
            print(f"{name:18} {microseconds:8.2f}{'' if name == 'ratio' else ' us'}")
        print(f"{'planned':18} {launches:5}    launches")
    return 0


if __name__ == "__main__":
    sys.exit(main())
