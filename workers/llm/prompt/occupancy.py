"""How much of a multiprocessor a kernel can fill. Pure.

Computed from its compile report and the device's limits.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from warpsmith.kernels_db.runtime.limits import Launch, Limits, Usage, blocks_at_once, of_architecture

WARP = 32
TRITON_WARPS = 4
"""Triton's default where a launch names no `num_warps`."""


class Occupancy(NamedTuple):
    """The occupancy of a kernel in one launch.

    share: of the threads of a multiprocessor that can be resident; blocks: at once; threads: of a block. by: the
    resource that keeps it from more.
    """

    share: float
    blocks: int
    threads: int
    by: str


def occupancies(compiled: Mapping[str, Any], kernel: Mapping[str, Any], target: str) -> list[Occupancy]:
    """Compute the occupancy of `kernel` in each different launch.

    `kernel` is one of the compile report's. Empty where the occupancy is not known.
    """
    match = re.fullmatch(r"cuda:sm_(\d+)[af]?", target)
    limits = of_architecture(int(match[1])) if match else None
    if limits is None or kernel.get("registers") is None:
        return []
    usage = Usage(int(kernel["registers"]), int(kernel.get("shared") or 0))
    found = (_occupancy(launch, usage, limits) for launch in _launches(compiled, kernel))
    return list(dict.fromkeys(one for one in found if one is not None))


def _launches(compiled: Mapping[str, Any], kernel: Mapping[str, Any]) -> Iterator[Launch]:
    """Yield launches of a CUDA kernel as they were seen; of a Triton kernel, its block of warps."""
    if "config" in kernel:
        warps = kernel["config"].get("num_warps", TRITON_WARPS)
        yield Launch((1, 1, 1), (WARP * int(warps), 1, 1))
        return
    for seen in compiled.get("launches") or ():
        if seen["kernel"] == kernel.get("name"):
            x, y, z = seen["block"]
            yield Launch((1, 1, 1), (int(x), int(y), int(z)), shared_bytes=int(seen.get("shared_bytes") or 0))


def _occupancy(launch: Launch, usage: Usage, limits: Limits) -> Occupancy | None:
    blocks = blocks_at_once(launch, usage, limits)
    threads = -(-launch.threads // WARP) * WARP
    if blocks < 1 or threads < 1:
        return None
    small = replace(launch, shared_bytes=0)
    if blocks_at_once(small, replace(usage, registers=1, shared=0), limits) == blocks:
        by = "the number of blocks" if blocks == limits.blocks_sm else "threads"
    else:
        alone = {
            "registers": blocks_at_once(small, replace(usage, shared=0), limits),
            "shared memory": blocks_at_once(launch, replace(usage, registers=1), limits),
        }
        by = " and by ".join(name for name, count in alone.items() if count == blocks)
    return Occupancy(blocks * threads / limits.threads_sm, blocks, launch.threads, by)
