"""The techniques that an idea may use, and the names that models give them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Literal, get_args

Technique = Literal[
    "memory_access", "asynchrony", "precision", "compute", "parallelism", "control_flow", "fusion", "algorithm"
]
TECHNIQUES: tuple[str, ...] = get_args(Technique)

MAX_NAME_CHARS = 200

# Names that models write instead of the given ones.
_ALIASES = {
    "memory": "memory_access",
    "memory_layout": "memory_access",
    "memory_coalescing": "memory_access",
    "coalescing": "memory_access",
    "data_layout": "memory_access",
    "locality": "memory_access",
    "cache": "memory_access",
    "cache_blocking": "memory_access",
    "tiling": "memory_access",
    "blocking": "memory_access",
    "bandwidth": "memory_access",
    "streaming_stores": "memory_access",
    "memory_hierarchy": "memory_access",
    "memory_bandwidth": "memory_access",
    "vectorized_memory_access": "memory_access",
    "shared_memory": "memory_access",
    "async": "asynchrony",
    "asynchronous": "asynchrony",
    "latency": "asynchrony",
    "latency_hiding": "asynchrony",
    "asynchrony_and_latency_hiding": "asynchrony",
    "prefetch": "asynchrony",
    "prefetching": "asynchrony",
    "pipelining": "asynchrony",
    "overlap": "asynchrony",
    "async_copy": "asynchrony",
    "software_pipelining": "asynchrony",
    "double_buffering": "asynchrony",
    "warp_specialization": "asynchrony",
    "instruction_level_parallelism": "asynchrony",
    "ilp": "asynchrony",
    "data_type": "precision",
    "dtype": "precision",
    "data_type_and_precision": "precision",
    "mixed_precision": "precision",
    "low_precision": "precision",
    "numerics": "precision",
    "instruction": "compute",
    "instructions": "compute",
    "instruction_level": "compute",
    "compute_and_instruction": "compute",
    "compute_and_instructions": "compute",
    "vectorized": "compute",
    "fma": "compute",
    "vectorization": "compute",
    "vectorisation": "compute",
    "simd": "compute",
    "tensor_cores": "compute",
    "intrinsics": "compute",
    "math": "compute",
    "threading": "parallelism",
    "multithreading": "parallelism",
    "occupancy": "parallelism",
    "parallelism_and_occupancy": "parallelism",
    "parallelization": "parallelism",
    "parallelisation": "parallelism",
    "thread_parallelism": "parallelism",
    "openmp": "parallelism",
    "split_k": "parallelism",
    "scheduling": "parallelism",
    "load_balancing": "parallelism",
    "control": "control_flow",
    "loops": "control_flow",
    "loop": "control_flow",
    "loop_unrolling": "control_flow",
    "unrolling": "control_flow",
    "control_flow_and_loops": "control_flow",
    "branching": "control_flow",
    "specialization": "control_flow",
    "specialisation": "control_flow",
    "kernel_fusion": "fusion",
    "operator_fusion": "fusion",
    "epilogue_fusion": "fusion",
    "algorithmic": "algorithm",
    "algorithmic_change": "algorithm",
    "algorithms": "algorithm",
}


def technique(name: object) -> str | None:
    """Return the technique that `name` means, or None.

    Of several in one name ("fusion, tiling") it is the first.
    """
    if not isinstance(name, str) or len(name) > MAX_NAME_CHARS:
        return None
    named = (_known(part) for part in (name, *re.split(r"[,/|+&;:()]", name)))
    return next((known for known in named if known), None)


def _known(name: str) -> str | None:
    key = re.sub(r"[^a-z0-9]+", "_", name.casefold()).strip("_")
    return key if key in TECHNIQUES else _ALIASES.get(key)


def ruled_out(params: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the techniques that ideas may not use, by the parameters of their step.

    None where every technique is named, for then nothing could be answered.
    """
    names = str(params.get("technique_not_in") or "").split(",")
    return tuple(name for name in names if name) if set(TECHNIQUES) - set(names) else ()
