"""Record a profiled run of a candidate in its runner, as a Chrome trace.

On a GPU torch's profiler does it. That profiler writes a file, which a runner on a CPU may not do, so there the calls
of `run` and of the C++ functions are timed here.

The trace is the runner's word and decides nothing.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

CALL, FUNCTION = "run", "kernels."
"""Names of regions: one call of `run`; one call of a compiled C++ function.

The latter is under the function's name.
"""

MOST_REGIONS, LONGEST_NAME = 500, 100
"""Of a CPU's trace, which is one message: functions, calls of `run` not counted."""


def record_gpu(call: Callable[[], object], calls: int, trace: Path) -> None:
    """Run `call` `calls` times under torch's profiler, and write the result to `trace`.

    It waits until the device is idle.
    """
    import torch  # noqa: PLC0415 - already loaded by the fork server
    from torch.profiler import ProfilerActivity, profile, record_function  # noqa: PLC0415 - few jobs come so far

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as profiler:
            for _ in range(calls):
                with record_function(CALL):
                    call()
                    torch.cuda.synchronize()
        profiler.export_chrome_trace(str(trace))


def record_cpu(call: Callable[[], object], calls: int) -> dict[str, Any]:
    """Call `calls` times; the regions that were entered, as a Chrome trace."""
    regions: list[tuple[str, int, int]] = []
    with _timed_functions(regions):
        for _ in range(calls):
            start = time.perf_counter_ns()
            call()
            regions.append((CALL, start, time.perf_counter_ns()))
    events = [
        {
            "ph": "X",
            "cat": "user_annotation",
            "name": name[:LONGEST_NAME],
            "pid": 0,
            "tid": 0,
            "ts": start / 1000.0,
            "dur": (end - start) / 1000.0,
        }
        for name, start, end in regions
    ]
    return {"traceEvents": events}


@contextmanager
def _timed_functions(regions: list[tuple[str, int, int]]) -> Iterator[None]:
    """Note begin and end of every call of a compiled C++ function inside the block.

    In nanoseconds.
    """
    from warpsmith.kernels_db.runtime import cpp  # noqa: PLC0415

    plain = cpp.Function.__call__

    def timed(function: cpp.Function, *arguments: Any) -> None:
        start = time.perf_counter_ns()
        plain(function, *arguments)
        if len(regions) < MOST_REGIONS:
            regions.append((FUNCTION + function.name, start, time.perf_counter_ns()))

    cpp.Function.__call__ = timed  # type: ignore[method-assign, assignment]
    try:
        yield
    finally:
        cpp.Function.__call__ = plain  # type: ignore[method-assign]
