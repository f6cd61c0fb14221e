"""What a workload determines by itself: buffers, slots, results of a call, its key."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import replace

import torch

from warpsmith.kernels_db.job.documents import ResolvedWorkload
from warpsmith.kernels_db.job.memory import count_slots
from warpsmith.workers.judge.machine.buffers import TensorSpec, contiguous_strides, layout_bytes
from warpsmith.workers.judge.values.inputs import input_spec

Values = Sequence["torch.Tensor | None"]
"""Of the inputs of one call, in order; None for scalars."""


def result_specs(workload: ResolvedWorkload) -> list[TensorSpec]:
    """Return the output buffers of a workload."""
    specs = []
    for item in workload["outputs"]:
        shape = tuple(item["shape"])
        specs.append(TensorSpec(item["name"], shape, contiguous_strides(shape), getattr(torch, item["dtype"])))
    return specs


def input_specs(workload: ResolvedWorkload) -> list[TensorSpec]:
    """Return the input buffers of a workload, scalars included."""
    return [input_spec(item) for item in workload["inputs"]]


def widened(spec: TensorSpec) -> TensorSpec:
    """Return the buffer that holds the same tensor for the float64 reference."""
    if spec.shape is None or not spec.dtype.is_floating_point:
        return spec
    return replace(spec, dtype=torch.float64, alignment=max(spec.alignment, torch.float64.itemsize))


def slots_for(workload: ResolvedWorkload, device: torch.device) -> int:
    """Return the number of slots that a runner rotates through on this device."""
    size = layout_bytes([*input_specs(workload), *result_specs(workload)])
    return count_slots(size, "cuda" if device.type == "cuda" else "cpu")


def result_positions(workload: ResolvedWorkload) -> list[tuple[str, int]]:
    """Name and slot position of everything a call produces: outputs, then mutated inputs."""
    inputs = workload["inputs"]
    outputs = [(item["name"], len(inputs) + n) for n, item in enumerate(workload["outputs"])]
    return outputs + [(item["name"], n) for n, item in enumerate(inputs) if item["mutated"]]


def result_spec(workload: ResolvedWorkload, position: int) -> TensorSpec:
    """Return the buffer of the result at a position of `result_positions`."""
    outputs = result_specs(workload)
    if position < len(outputs):
        return outputs[position]
    return input_specs(workload)[result_positions(workload)[position][1]]


def is_exact(workload: ResolvedWorkload, position: int) -> bool:
    """Check whether the result at a position of `result_positions` has the check `exact`."""
    return own_tolerance(workload, result_positions(workload)[position][0]) == (0.0, 0.0)


def own_tolerance(workload: ResolvedWorkload, name: str) -> tuple[float, float] | None:
    """Return the op's own (rtol, atol) for an output; None where it is derived."""
    for item in workload["outputs"]:
        if item["name"] == name and item["tolerance"] is not None:
            return float(item["tolerance"].get("rtol", 0.0)), float(item["tolerance"].get("atol", 0.0))
    return None


def workload_key(workload: ResolvedWorkload) -> str:
    """Identity of a workload as the reference sees it."""
    return hashlib.sha256(json.dumps([workload["inputs"], workload["outputs"]], sort_keys=True).encode()).hexdigest()
