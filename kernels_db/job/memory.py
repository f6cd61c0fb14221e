"""The device memory of a job at its peak, from shapes and dtypes alone.

The judge allocates nothing before it knows this, and a step is given to no host whose device is too small by it. Both
must say the same, and who places steps has no torch.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Literal

from warpsmith.kernels_db.job.documents import JobOp, ResolvedInput, ResolvedWorkload
from warpsmith.kernels_db.job.dtypes import DTYPE_BYTES, is_float

DeviceKind = Literal["cpu", "cuda"]

SHARE = 0.8
"""Share of the memory that a job may take where it names no limit."""

GPU_SHARE = 0.9
"""Share of a GPU's memory that is for buffers: contexts, libraries and torch's allocators take the rest."""

PAGE = 4096
GUARD = PAGE
"""Bytes beside a tensor by which writing out of bounds is seen."""

LARGE_SLOT = 128 << 20
MOST_SLOTS = 24
GPU_SLOTS_BYTES = 4 << 30
"""Of a runner's slots on a GPU, where each is smaller than half of that."""

DRAWN_ANEW = 1 << 16
"""Most elements of floating values that a CPU draws anew for each call; more are mixed from a stock.

Drawing takes a CPU some 4 ns an element, mixing 1. A GPU draws everything: it is as fast as a copy.
"""

BLOCK = 1 << 16
"""Elements that are mixed from the same two places of a stock."""

STOCK = 1 << 21
"""Elements of a stock: so many places there are for each of a block's two windows."""

CHUNK = 1 << 24
"""Elements that are drawn at a time, which bounds the memory of the float32 or float64 values that are rounded."""

DRAWN_BY_CHUNKS = frozenset({"normal", "uniform", "randint", "bernoulli", "constant"})
"""Kinds of distributions whose elements do not depend on each other."""

_STRUCTURED_BYTES = 24
"""Bytes an element that drawing structured values takes besides: three numbers of float64 or int64."""


def usable_bytes(total: int, kind: DeviceKind) -> int:
    """Return the bytes that a job may take of a device of `total` bytes with nothing else on it."""
    return int(SHARE * (int(GPU_SHARE * total) if kind == "cuda" else total))


def needed_bytes(op: JobOp, workload: ResolvedWorkload, kind: DeviceKind) -> int:
    """Return the memory of one workload at its peak.

    That is every runner's slots, the stocks, the expected values, and the references' temporaries.

    A reference's temporaries cannot be known; they are counted as much as its inputs and outputs again, in float64 for
    the float64 one.
    """
    inputs, outputs = workload["inputs"], workload["outputs"]
    slot = slot_bytes(_list_sizes(workload))
    wide = slot_bytes(_list_sizes(workload, widened=True))
    experts = len(op.get("experts", {}))
    runners = len(op["baselines"]) + 1
    # On a GPU an expert is timed in the slots of others.
    holders = runners - experts if kind == "cuda" else runners
    slots = holders * count_slots(slot, kind) * slot + wide
    values = 2 * sum(stock_bytes(item, kind) for item in inputs if item["shape"] is not None)
    results = 3 * sum(8 * math.prod(item["shape"]) for item in outputs)
    results += 2 * sum(8 * math.prod(item["shape"]) for item in inputs if item["mutated"] and item["shape"] is not None)
    return slots + values + results + wide + runners * slot


def slot_bytes(sizes: Iterable[int]) -> int:
    """Return the bytes of one slot for tensors whose storages have these sizes, guards included."""
    return sum((size + PAGE - 1) // PAGE * PAGE + 4 * GUARD for size in sizes) + PAGE


def count_slots(slot: int, kind: DeviceKind) -> int:
    """Return the number of slots of `slot` bytes that a runner rotates through.

    They give fresh pointers for every call, and are fewer where they are large. On a GPU every call of a burst has its
    own.
    """
    if kind == "cuda":
        return min(MOST_SLOTS, max(2, GPU_SLOTS_BYTES // slot))
    return 3 if slot <= LARGE_SLOT else 2


def stock_bytes(item: ResolvedInput, kind: DeviceKind) -> int:
    """Return the bytes that the source of one input's values holds while it makes those of a call."""
    elements, size = math.prod(item["shape"] or ()), DTYPE_BYTES[item["dtype"]]
    dist = item["dist"].get("kind")
    if dist is not None and is_mixed(dist, is_float(item["dtype"]), elements, kind):
        return elements * size + 8 * (STOCK + BLOCK)
    if dist in DRAWN_BY_CHUNKS:
        return elements * size + 16 * min(elements, CHUNK)
    return elements * (size + _STRUCTURED_BYTES)


def is_mixed(dist: str, floating: bool, elements: int, kind: DeviceKind) -> bool:
    """Check whether an input's values are mixed from a stock."""
    return kind == "cpu" and floating and dist in ("normal", "uniform") and elements > DRAWN_ANEW


def _list_sizes(workload: ResolvedWorkload, *, widened: bool = False) -> list[int]:
    """List the bytes of every tensor of a call; `widened`: floating ones as float64."""
    stored = [
        (item["dtype"], _count_stored(item["shape"], item["strides"]))
        for item in workload["inputs"]
        if item["shape"] is not None
    ]
    stored += [(item["dtype"], math.prod(item["shape"])) for item in workload["outputs"]]
    return [count * (8 if widened and is_float(dtype) else DTYPE_BYTES[dtype]) for dtype, count in stored]


def _count_stored(shape: list[int], strides: list[int] | None) -> int:
    """Count the elements from the first to the last that the strides reach."""
    if strides is None or 0 in shape:
        return math.prod(shape)
    return 1 + sum((size - 1) * stride for size, stride in zip(shape, strides, strict=True))
