"""Measure a model's time, and that of each operator of its graph.

By the clock and by torch's profiler.
"""

from __future__ import annotations

import statistics
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.fx import GraphModule, Interpreter, Node
from torch.profiler import ProfilerActivity, profile, record_function

from warpsmith.workers.optimize.compiled.inputs import Inputs
from warpsmith.workers.optimize.compiled.turns import wait

CALLS = 5
"""Calls under the profiler, after two that wake threads and code."""
MOST_OPERATORS = 15
_REGION = "warpsmith "


def operators(call: Callable[[], Any], device: torch.device) -> list[dict[str, Any]]:
    """List the operators of the model as it is, by their own time in one call.

    Name, calls and microseconds.
    """
    for _ in range(2):
        call()
    with _profiled(device) as profiler:
        for _ in range(CALLS):
            call()
        wait(device)
    rows = [
        {"name": event.key, "calls": event.count / CALLS, "self_us": round(_own_us(event, device) / CALLS, 3)}
        for event in profiler.key_averages()
        if event.key.startswith("aten::")
    ]
    return sorted(rows, key=lambda row: -row["self_us"])[:MOST_OPERATORS]


def node_times(module: GraphModule, inputs: Inputs, device: torch.device) -> dict[str, float]:
    """Measure the microseconds of each node of a graph, by its name.

    The median over CALLS calls.
    """
    runner = _Named(module)
    for _ in range(2):
        runner.of(inputs)
    with _profiled(device) as profiler:
        for _ in range(CALLS):
            runner.of(inputs)
        wait(device)
    found: defaultdict[str, list[float]] = defaultdict(list)
    for event in profiler.events():  # type: ignore[no-untyped-call]
        if event.name.startswith(_REGION) and _on_host(event):
            found[event.name.removeprefix(_REGION)].append(_whole_us(event, device))
    return {name: statistics.median(times) for name, times in found.items()}


class _Named(Interpreter):
    """Runs a graph with each call under its node's name."""

    def of(self, inputs: Inputs) -> Any:
        with torch.no_grad():
            return self.run(*inputs.leaves()[0], enable_io_processing=False)

    def run_node(self, n: Node) -> Any:
        if n.op != "call_function":
            return super().run_node(n)
        with record_function(_REGION + n.name):
            return super().run_node(n)


@contextmanager
def _profiled(device: torch.device) -> Iterator[profile]:
    activities = [ProfilerActivity.CPU] + ([ProfilerActivity.CUDA] if device.type == "cuda" else [])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with profile(activities=activities) as profiler:
            yield profiler


def _on_host(event: Any) -> bool:
    """Check that an event is not the shadow of a region on the device's own line."""
    return "cpu" in str(event.device_type).lower()


def _whole_us(event: Any, device: torch.device) -> float:
    """Return the time of a region with all that it ran: on a GPU that of its kernels there."""
    return float(event.device_time_total if device.type == "cuda" else event.cpu_time_total)


def _own_us(event: Any, device: torch.device) -> float:
    return float(event.self_device_time_total if device.type == "cuda" else event.self_cpu_time_total)
