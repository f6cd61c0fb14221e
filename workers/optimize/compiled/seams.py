"""What a graph may lose at the seams of its kernels, at most: with it a graph need not be compiled without them, too.

Each place was timed by itself, as a whole: Inductor's code for it read its inputs and wrote its results there, as a
kernel does. Within a graph Inductor may fuse what is in a place with what is around it, and need not write and read
what lies between. So what all places save, each at the low end of its interval, less a kernel and the bytes for
each tensor between a place and its surroundings, is saved by the graph. It is only said of graphs whose code is one
CUDA graph, for places are timed so: otherwise what a call costs the host would count as well.
"""

from __future__ import annotations

import functools
import json
import operator
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import fx

from . import inductor, match
from .choice import Decision
from .places import Region

LAUNCH_US = 3.0
"""Of a small kernel of Inductor's in a CUDA graph, with the pause before it: 2.0 on an H100 (98 us for 80 of them in a
decode step, 0.8 between two launches)."""
COPIED_BYTES = 128 << 20
"""More than a GPU's cache holds."""


@dataclass(frozen=True)
class Gain:
    """What kernels save of a call at least, and what is lost at their seams at most, in microseconds."""

    saved_us: float
    lost_us: float

    @property
    def sure(self) -> bool:
        """Whether the graph is faster with its kernels, whatever Inductor would fuse without them."""
        return self.saved_us > self.lost_us

    def __str__(self) -> str:
        return f"they save at least {self.saved_us:.0f} us of a call, for at most {self.lost_us:.0f} lost around them"


def gain(device: torch.device, patches: inductor.Patches, chosen: Sequence[tuple[Region, Decision]]) -> Gain | None:
    """Return what kernels in these places gain; None where it is not known without the graph that has none."""
    if not chosen or not inductor.captures(device, patches):
        return None
    try:
        return bound(chosen, _bytes_per_us(device))
    except torch.OutOfMemoryError:
        return None  # a copy has no room: then it is tried


def bound(chosen: Sequence[tuple[Region, Decision]], bytes_per_us: float) -> Gain | None:
    """Return what kernels in these places gain on a device that copies so fast; None where something is not known."""
    saved = 0.0
    for _, found in chosen:
        if found.us is None or found.ci95 is None:
            return None
        saved += found.us * (found.ci95[0] - 1)
    between = list(dict.fromkeys(node for region, _ in chosen for node in _seams(region)))
    size = 0
    for node in between:
        value = node.meta.get("val")
        sized = inductor.sized(value) if isinstance(value, torch.Tensor) else None
        if sized is None:
            return None
        size += sized.numel() * sized.element_size()
    return Gain(saved, len(between) * LAUNCH_US + 2 * size / bytes_per_us)


def _seams(region: Region) -> Iterator[fx.Node]:
    """Yield what is computed on one side of a place's edge and read on the other, and what the op writes to."""
    inputs = map(_looked_at, region.match.inputs)
    yield from (node for node in inputs if node.op == "call_function" and node.all_input_nodes)
    written = dict(region.written)
    yield from written
    yield from (_looked_at(node) for node in region.match.outputs if node not in written.values())


def _looked_at(node: fx.Node) -> fx.Node:
    """Return the tensor that a node is a view of, itself where it is none."""
    while match.is_view(node) and node.all_input_nodes:
        source = node.all_input_nodes[0]
        if node.target is operator.getitem and not isinstance(source.meta.get("val"), torch.Tensor):
            break  # one of several results
        node = source
    return node


@functools.cache
def _bytes_per_us(device: torch.device) -> float:
    """Return the bytes that a copy on a GPU reads and writes in a microsecond."""
    with inductor.outside():
        source = torch.empty(COPIED_BYTES, dtype=torch.uint8, device=device)
        target = torch.empty_like(source)
        times: list[float] = []
        for _ in range(5):
            begun, ended = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
            begun.record(torch.cuda.current_stream(device))
            target.copy_(source)
            ended.record(torch.cuda.current_stream(device))
            ended.synchronize()
            times.append(begun.elapsed_time(ended) * 1e3)
    return 2 * COPIED_BYTES / min(times)


def read(file: Path) -> Gain | None:
    """Return what was kept of a graph; None where no file says so."""
    try:
        found: Any = json.loads(file.read_text("utf-8"))
        return Gain(float(found["saved_us"]), float(found["lost_us"]))
    except (OSError, ValueError, TypeError, KeyError):
        return None
