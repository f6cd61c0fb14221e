"""The red team's catalogue: cheats that must be caught and honest controls that must be accepted, on CPU and GPU.

`python -m benchmarks.redteam` judges all of it; tests/redteam and tests/gpu judge the same entries one by one.
"""

from __future__ import annotations

from typing import TypeVar

from benchmarks.redteam_catalogue import (
    cheats_clock,
    cheats_compiler,
    cheats_cute,
    cheats_gluon,
    cheats_gpu,
    cheats_host,
    cheats_memory_cpp,
    cheats_native,
    cheats_numeric,
    cheats_python,
    cheats_rows,
    cheats_sizes,
    cheats_state,
    cheats_tilelang,
    cheats_truth,
    cheats_values,
    controls_cpp,
    controls_cuda,
    controls_numeric,
    controls_python,
    controls_triton,
    controls_truth,
    device_memory,
    rings,
)
from benchmarks.redteam_catalogue.entry import Cheat, Control, Device

Entry = TypeVar("Entry", Cheat, Control)

__all__ = ["Cheat", "Control", "cheats", "controls"]


def cheats(device: Device) -> list[Cheat]:
    """Every cheat that runs on a device; those of one op stand together, since its reference is then started once."""
    modules = (
        cheats_host,
        cheats_values,
        cheats_rows,
        cheats_sizes,
        cheats_state,
        cheats_native,
        cheats_numeric,
        cheats_compiler,
        cheats_memory_cpp,
        cheats_gpu,
        cheats_clock,
        device_memory,
        rings,
        cheats_python,
        cheats_truth,
        cheats_cute,
        cheats_tilelang,
    )
    found = [cheat for module in modules for cheat in module.cheats() if cheat.device == device]
    return _by_op([*found, *cheats_gluon.translated_cheats(found)])


def controls(device: Device) -> list[Control]:
    """Every control that runs on a device, ordered likewise."""
    modules = (
        controls_cpp,
        cheats_memory_cpp,
        cheats_sizes,
        controls_triton,
        controls_cuda,
        device_memory,
        rings,
        controls_numeric,
        controls_python,
        controls_truth,
        cheats_cute,
        cheats_tilelang,
    )
    found = [control for module in modules for control in module.controls() if control.device == device]
    return _by_op([*found, *cheats_gluon.translated_controls(found)])


def _by_op(found: list[Entry]) -> list[Entry]:
    ops = list(dict.fromkeys(f"{entry.op.name} {entry.op.workloads}" for entry in found))
    order = {op: number for number, op in enumerate(ops)}
    return sorted(found, key=lambda entry: order[f"{entry.op.name} {entry.op.workloads}"])
