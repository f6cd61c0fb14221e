"""The `vllm` format: the package, which is also a plugin of vLLM that puts the op in place of vLLM's own layer.

Held against vLLM's interface as published (`CustomOp.register_oot`, entry points `vllm.general_plugins`), versions
0.10 to 0.17. The layer itself is `package_files/_vllm.py`; which arguments of the op are what in it is written here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from warpsmith.kernels_db.export import package
from warpsmith.kernels_db.export.joining import joined
from warpsmith.kernels_db.export.kernel import ExportedKernel, module_name, write_project
from warpsmith.kernels_db.export.layer_facts import epsilons
from warpsmith.kernels_db.job.dtypes import is_float
from warpsmith.kernels_db.spec.errors import SpecError, SpecErrors
from warpsmith.kernels_db.spec.op import Op
from warpsmith.kernels_db.spec.tensors import Input

NAME = "vllm"
EPSILONS = ("eps", "epsilon", "variance_epsilon")


@dataclass(frozen=True)
class Layer:
    """A layer of vLLM's that an op can be: how many activations it takes, whether it has a weight; its results."""

    layer: str
    activations: tuple[str, ...]
    weight: bool
    outputs: tuple[int, ...] = (1,)


LAYERS = {
    "rms_norm": Layer("RMSNorm", ("x",), weight=True),
    "add_rms_norm": Layer("RMSNorm with a residual", ("x", "residual"), weight=True, outputs=(1, 2)),
    "silu_and_mul": Layer("SiluAndMul", ("x",), weight=False),
    "gelu_tanh": Layer("NewGELU", ("x",), weight=False),
}
"""By the op's name."""


def build(kernel: ExportedKernel, directory: Path, *others: ExportedKernel, name: str | None = None) -> Path:
    """Write the package with its plugin below `directory` and return its project directory.

    Raises FileExistsError where that exists, SpecErrors where no layer of vLLM's is known that the op could be.
    """
    kernels = joined([kernel, *others])
    module = name or module_name(*kernels)
    layer = layer_source(kernels[0])
    files = package.project_files(kernels, module, vllm_layer=layer)
    return write_project(directory, module, files)


def layer_source(kernel: ExportedKernel) -> str:
    """Return the module `_layer`: which arguments of the op are what in the layer.

    Raises SpecErrors where no layer of vLLM's is known that the op could be.
    """
    op = kernel.op
    if op.name not in LAYERS:
        known = ", ".join(f"{name} ({layer.layer})" for name, layer in LAYERS.items())
        raise SpecErrors([SpecError("name", op.name, f"an op whose layer in vLLM is known: one of {known}")])
    layer = LAYERS[op.name]
    parts = _parts(op, layer)
    epsilon = None if "epsilon" in parts or not layer.weight else _epsilon(op)
    return f'''"""Which layer of vLLM's the op is, and what its arguments are there."""

import torch

LAYER = {op.name!r}
ARGUMENTS = {tuple(parts)!r}
OUTPUTS = {len(op.outputs)}
EPSILON = {epsilon!r}  # the reference's own; None: an argument, or none
DTYPE = torch.{op.inputs[0].dtype}
'''


def _parts(op: Op, layer: Layer) -> list[str]:
    """Return each argument's part in the layer, in the op's order. Raises SpecErrors."""
    activations, parts = list(layer.activations), []
    for item in op.inputs:
        if item.shape is None:
            part = "epsilon" if layer.weight and item.name in EPSILONS and "epsilon" not in parts else None
        elif item.role == "weight":
            part = "weight" if layer.weight and len(item.shape) == 1 and "weight" not in parts else None
        else:
            part = activations.pop(0) if activations and len(item.shape) == 2 else None
        parts.append(part)
    wanted = [
        *(f"{name} of two axes" for name in layer.activations),
        *(["a weight of one axis"] if layer.weight else []),
    ]
    expected = f"{', '.join(wanted)}: what vLLM's {layer.layer} has"
    known = [part for part in parts if part is not None]
    if len(known) < len(parts) or activations or (layer.weight and "weight" not in known) or op.state:
        raise SpecErrors([SpecError("inputs", ", ".join(item.name for item in op.inputs), expected)])
    errors = [
        SpecError(f"inputs[{number}].{field}", found, wanted_of)
        for number, item in enumerate(op.inputs)
        for field, found, wanted_of in _wrong(item, op)
    ]
    if len(op.outputs) not in layer.outputs:
        found = f"{len(op.outputs)} outputs"
        errors.append(SpecError("outputs", found, " or ".join(map(str, layer.outputs))))
    if errors:
        raise SpecErrors(errors)
    return known


def _wrong(item: Input, op: Op) -> Sequence[tuple[str, object, str]]:
    dtype = op.inputs[0].dtype
    found: list[tuple[str, object, str]] = []
    if item.mutated:
        found.append(("mutated", True, "false: vLLM's own results are new tensors"))
    if item.shape is not None and (item.dtype != dtype or not is_float(item.dtype)):
        found.append(("dtype", item.dtype, f"one floating dtype for all tensors ({dtype})"))
    return found


def _epsilon(op: Op) -> float:
    """Return the epsilon in the reference. Raises SpecErrors where there is none, or more than one."""
    found = epsilons(op)
    if len(found) != 1:
        expected = f"one call rms_norm(x, shape, weight, EPSILON) with a number, or an input {' or '.join(EPSILONS)}"
        raise SpecErrors([SpecError("reference", f"{len(found)} epsilons", expected)])
    return found[0]
