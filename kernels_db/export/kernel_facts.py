"""Writes each kernel's facts into an export's `_spec.py`: envelope, workloads, times."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import geometric_mean
from typing import Any

from warpsmith.kernels_db.export.kernel import ExportedKernel, kernel_name, verified_workloads
from warpsmith.kernels_db.spec.op import Op, Target
from warpsmith.kernels_db.spec.resolve import arguments
from warpsmith.kernels_db.spec.tensors import VarAxis

Timed = tuple[dict[str, int], float, float]
"""The var axes of a shape, microseconds, and the figure that kernels are compared by.

The smaller, the faster.
"""

_LIBRARIES = ("torch", "triton", "nvidia-cutlass-dsl", "tilelang")
"""What a kernel's guard compares the versions of."""


def file_of(name: str, kernels: Sequence[object], stem: str, ending: str = ".json") -> str:
    """Return the name of a package's file that holds `stem` of the kernel `name`.

    The file's name has the kernel's where there are several kernels.
    """
    return f"{stem}{ending}" if len(kernels) == 1 else f"{stem}_{name}{ending}"


def render_kernels(kernels: Sequence[ExportedKernel]) -> list[str]:
    """Return the lines of `_spec.py` that define KERNELS."""
    by_limit = all(row.get("limit_us") for kernel in kernels for row in _timed_rows(kernel).values())
    lines: list[str] = []
    for number, kernel in enumerate(kernels):
        module = file_of(kernel_name(kernel), kernels, "_kernel", "")
        lines += ["", "", f"def _load_{number}() -> ModuleType:", f"    from . import {module} as module"]
        lines += ["", "    return module"]
    lines += ["", "", "KERNELS: list[dict[str, Any]] = ["]
    for number, kernel in enumerate(kernels):
        facts = {**_facts(kernel), "timed": timed(kernel, by_limit)}
        op = kernel.op
        dtypes = ", ".join("None" if i.shape is None else f"torch.{i.dtype}" for i in arguments(op))
        lines += [
            "    {",
            *(f"        {name!r}: {source(value)}," for name, value in facts.items()),
            f"        'dtypes': [{dtypes}],",
            f"        'outputs': [{', '.join(f'torch.{o.dtype}' for o in op.outputs)}],",
            f"        'load': _load_{number},",
            "    },",
        ]
    return [*lines, "]"]


def _facts(kernel: ExportedKernel) -> dict[str, Any]:
    envelope, target = kernel.envelope, Target.parse(kernel.target)
    versions = {name: envelope["versions"][name] for name in _LIBRARIES if name in envelope["versions"]}
    return {
        "name": kernel_name(kernel),
        "id": kernel.id,
        "device": target.device,
        "arch": target.arch,
        "language": kernel.language,
        "versions": versions,
        "ranges": {name: (a["min"], a["max"]) for name, a in envelope["axes"].items()},
        "steps": {name: a.get("step", 1) for name, a in envelope["axes"].items()},
        "relations": [tuple(one) for one in envelope.get("relations", [])],
        "numbers": verified_numbers(kernel),
        "configurations": configurations(kernel),
        "leads": None if kernel.leads is None else list(kernel.leads),
        "verified": [dict(axes) for axes in {tuple(shape["axes"].items()): None for shape in envelope["shapes"]}],
    }


def configurations(kernel: ExportedKernel) -> list[tuple[str, list[Any], dict[str, Any]]]:
    """Return what Triton's autotuner took where the kernel was timed, each once: function, key, configuration.

    A key that was tuned twice keeps the first. Empty for a verdict of before the judge noted it.
    """
    found: dict[tuple[str, str], tuple[str, list[Any], dict[str, Any]]] = {}
    for workload in kernel.evidence["workloads"]:
        for one in workload.get("configurations", ()):
            place = one["kernel"], repr(one["key"])
            found.setdefault(place, (one["kernel"], one["key"], one["configuration"]))
    return list(found.values())


def numbers(op: Op) -> list[int]:
    """Return the positions of the op's arguments that are numbers."""
    return [position for position, item in enumerate(arguments(op)) if item.shape is None]


def verified_numbers(kernel: ExportedKernel) -> list[tuple[Any, ...]]:
    """Return the op's numbers in the verified workloads, each combination once."""
    positions = numbers(kernel.op)
    found = (tuple(w["inputs"][position].get("value") for position in positions) for w in verified_workloads(kernel))
    return list(dict.fromkeys(found)) if positions else []


def timed(kernel: ExportedKernel, by_limit: bool) -> list[Timed]:
    """Return the verified shapes at which the kernel was timed.

    The figure is how many times the physical limit a call took, or, not `by_limit`, picoseconds for each byte that it
    has to move at least.
    """
    op, rows = kernel.op, _timed_rows(kernel)
    shapes: dict[tuple[tuple[str, int], ...], list[tuple[float, float]]] = {}
    for workload in verified_workloads(kernel):
        if workload["id"] in rows:
            row = rows[workload["id"]]
            time_us = row["time_us"]["candidate"]
            figure = time_us / row["limit_us"] if by_limit else time_us * 1e6 / max(workload["min_bytes"], 1)
            axes = tuple((n, size) for n, size in workload["axes"].items() if isinstance(op.axes[n], VarAxis))
            shapes.setdefault(axes, []).append((time_us, figure))
    return [
        (dict(axes), geometric_mean(us for us, _ in found), geometric_mean(figure for _, figure in found))
        for axes, found in shapes.items()
    ]


def _timed_rows(kernel: ExportedKernel) -> dict[str, Any]:
    return {row["id"]: row for row in kernel.evidence["workloads"] if (row.get("time_us") or {}).get("candidate")}


def source(value: Any) -> str:
    """Return a value of plain Python types as source; floats that are not finite as well."""
    if isinstance(value, dict):
        return f"{{{', '.join(f'{source(k)}: {source(v)}' for k, v in value.items())}}}"
    if isinstance(value, list):
        return f"[{', '.join(map(source, value))}]"
    if isinstance(value, tuple):
        return f"({', '.join(map(source, value))}{',' if len(value) == 1 else ''})"
    if isinstance(value, float) and not math.isfinite(value):
        return f"float({str(value)!r})"
    return repr(value)
