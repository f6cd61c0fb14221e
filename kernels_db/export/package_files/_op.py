"""The PyTorch op: the kernel inside its envelope, PyTorch everywhere else.

Dispatch happens inside the op, so `torch.compile` sees one op whatever the shapes are. Nothing here patches PyTorch:
removing the package removes the op.
"""

from __future__ import annotations

import threading
import warnings
from collections import Counter
from types import ModuleType
from typing import Any

import torch

from . import _reference, _spec

_lock = threading.Lock()
_kernel: ModuleType | None = None
_kernel_failure: str | None = None
_warned = False
counters: Counter[str] = Counter()
"""How many calls the kernel served ("kernel") and how many PyTorch did ("fallback"), in this process."""


def _load_kernel() -> ModuleType | None:
    """The kernel's module; its sources are compiled once, at the first call that it serves. None where that failed."""
    global _kernel, _kernel_failure
    with _lock:
        if _kernel is None and _kernel_failure is None:
            try:
                from . import _kernel as module
            except Exception as error:  # noqa: BLE001 - whatever it is, PyTorch serves
                _kernel_failure = f"the kernel did not load: {type(error).__name__}: {error}"
            else:
                _kernel = module
    return _kernel


def refusal(*arguments: Any) -> str | None:
    """Why the kernel cannot serve this call, or None when it can."""
    found = _admitted(arguments)
    return found if isinstance(found, str) else None


def _admitted(arguments: tuple[Any, ...]) -> dict[str, int] | str:
    """The named axes of a call that the kernel can serve, otherwise why it cannot."""
    for parameter, value in zip(_spec.PARAMETERS, arguments, strict=True):
        name = parameter["name"]
        if value is None:
            return f"{name} is left out"
        if parameter["rank"] is None:
            if not isinstance(value, (int, float)):
                return f"{name} is a {type(value).__name__}, expected a number"
            continue
        if not isinstance(value, torch.Tensor):
            return f"{name} is a {type(value).__name__}, expected a tensor"
        if value.device.type != _spec.DEVICE:
            return f"{name} is on {value.device.type}, verified on {_spec.DEVICE}"
        if value.dtype is not parameter["dtype"]:
            return f"{name} is {value.dtype}, verified for {parameter['dtype']}"
        if parameter["contiguous"] and not value.is_contiguous():
            return f"{name} is strided {tuple(value.stride())}, verified for contiguous tensors"
    axes = _spec.bind_axes(*arguments)
    if isinstance(axes, str):
        return axes
    for axis, value in axes.items():
        low, high = _spec.AXIS_RANGES[axis]
        if not low <= value <= high:
            return f"{axis} is {value}, verified from {low} to {high}"
    overlap = _overlap(arguments)
    if overlap is not None:
        return overlap
    if _load_kernel() is None:
        return _kernel_failure or "the kernel did not load"
    return axes


def _overlap(arguments: tuple[Any, ...]) -> str | None:
    """A mutated input that shares storage with another input: the kernel was verified on separate buffers."""
    for position in _spec.MUTATED:
        storage = arguments[position].untyped_storage().data_ptr()
        for other, value in enumerate(arguments):
            if other != position and isinstance(value, torch.Tensor) and value.untyped_storage().data_ptr() == storage:
                return f"{_spec.PARAMETERS[position]['name']} shares memory with {_spec.PARAMETERS[other]['name']}"
    return None


def _fallback(arguments: tuple[Any, ...], reason: str) -> Any:
    global _warned
    counters["fallback"] += 1
    if not _warned:
        _warned = True
        warnings.warn(f"{_spec.NAME}: PyTorch serves this call, because {reason}", RuntimeWarning, stacklevel=4)
    return _own(_reference.run(*arguments), arguments)


def _own(result: Any, arguments: tuple[Any, ...]) -> Any:
    """`result` with every tensor that aliases an input cloned: an op's outputs may not alias its inputs."""
    if result is None:
        return None
    inputs = {a.untyped_storage().data_ptr() for a in arguments if isinstance(a, torch.Tensor) and a.numel()}
    outputs = result if isinstance(result, tuple | list) else (result,)
    owned = tuple(o.clone() if o.untyped_storage().data_ptr() in inputs else o for o in outputs)
    return owned[0] if len(owned) == 1 else owned


def _run(*arguments: Any) -> Any:
    axes = _admitted(arguments)
    if isinstance(axes, str):
        return _fallback(arguments, axes)
    counters["kernel"] += 1
    assert _kernel is not None
    device = next(a.device for a in arguments if isinstance(a, torch.Tensor))
    outputs = [torch.empty(shape, dtype=dtype, device=device) for shape, dtype in _spec.output_shapes(axes)]
    _kernel.run(*arguments, *outputs)
    if not outputs:
        return None
    return outputs[0] if len(outputs) == 1 else tuple(outputs)


def _fake(*arguments: Any) -> Any:
    """Shapes and dtypes without data, for tracing: PyTorch's own, made contiguous as the kernel's outputs are."""
    if not _spec.OUTPUTS:
        return None
    result = _reference.run(*arguments)
    outputs = result if isinstance(result, tuple | list) else (result,)
    fakes = tuple(o.new_empty(o.shape) for o in outputs)
    return fakes[0] if len(fakes) == 1 else fakes


def _setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    ctx.save_for_backward(*(a for a in inputs if isinstance(a, torch.Tensor)))
    ctx.scalars = [None if isinstance(a, torch.Tensor) else a for a in inputs]
    ctx.is_tensor = [isinstance(a, torch.Tensor) for a in inputs]


def _backward(ctx: Any, *gradients: Any) -> tuple[Any, ...]:
    """Gradients by recomputation through the PyTorch reference: no backward kernel was searched for."""
    saved = iter(ctx.saved_tensors)
    arguments = [
        next(saved).detach().requires_grad_(needed) if tensor else scalar
        for tensor, scalar, needed in zip(ctx.is_tensor, ctx.scalars, ctx.needs_input_grad, strict=True)
    ]
    wanted = [a for a, needed in zip(arguments, ctx.needs_input_grad, strict=True) if needed]
    with torch.enable_grad():
        result = _reference.run(*arguments)
        outputs = result if isinstance(result, tuple | list) else (result,)
        pairs = [(o, g) for o, g in zip(outputs, gradients, strict=True) if g is not None and o.requires_grad]
        found = iter(
            torch.autograd.grad([o for o, _ in pairs], wanted, [g for _, g in pairs], allow_unused=True)
            if pairs
            else [None] * len(wanted)
        )
    return tuple(next(found) if needed else None for needed in ctx.needs_input_grad)


op = torch.library.custom_op(
    f"{_spec.NAMESPACE}::{_spec.NAME}",
    _run,
    mutates_args=[_spec.PARAMETERS[i]["name"] for i in _spec.MUTATED],
    schema=_spec.SCHEMA,
)
op.register_fake(_fake)
if not _spec.MUTATED:
    op.register_autograd(_backward, setup_context=_setup_context)


def call(*arguments: Any) -> Any:
    """Call the op. An in-place op has no gradient of its own: a call that needs one goes to PyTorch."""
    if (
        _spec.MUTATED
        and torch.is_grad_enabled()
        and any(isinstance(a, torch.Tensor) and a.requires_grad for a in arguments)
    ):
        counters["fallback"] += 1
        return _reference.run(*arguments)
    return op(*arguments)


def explain(*arguments: Any) -> str:
    """Which implementation would serve this call, and why."""
    reason = refusal(*arguments)
    return "kernel: inside the envelope" if reason is None else f"PyTorch: {reason}"
