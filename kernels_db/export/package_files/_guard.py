"""What the kernel may be called with: the envelope on which it was verified, and nothing beside it.

A call's shapes, strides, dtypes and devices are looked at once and remembered; addresses are looked at in every call.
"""

from __future__ import annotations

import platform
from dataclasses import dataclass
from typing import Any

import torch

from . import _spec

MOST_REMEMBERED = 1024
"""Signatures of calls; when there are more, all are forgotten."""
_MACHINES = {"amd64": "x86_64", "arm64": "aarch64"}


@dataclass(frozen=True)
class Admitted:
    """A call that the kernel can serve: its axes, and shape and dtype of each output."""

    axes: dict[str, int]
    outputs: list[tuple[tuple[int, ...], torch.dtype]]
    device: torch.device


_remembered: dict[tuple[Any, ...], Admitted | str] = {}


def admit(arguments: tuple[Any, ...]) -> Admitted | str:
    """The call as the kernel can serve it, otherwise why it cannot."""
    key: list[Any] = []
    for value in arguments:
        if isinstance(value, torch.Tensor):
            try:
                key += (value.shape, value.stride(), value.dtype, value.device)
            except RuntimeError:  # a layout without strides: cheaper than to ask every tensor for its layout
                return f"a tensor's layout is {value.layout}, verified for {torch.strided}"
        else:
            key.append(type(value))
    signature = tuple(key)
    found = _remembered.get(signature)
    if found is None:
        if len(_remembered) >= MOST_REMEMBERED:
            _remembered.clear()
        found = _remembered[signature] = _examine(arguments)
    if isinstance(found, str):
        return found
    for position, alignment in _spec.ALIGNMENTS:
        if arguments[position].data_ptr() % alignment:
            name = _spec.PARAMETERS[position]["name"]
            return f"{name} does not start at a multiple of {alignment} bytes, as it did when it was verified"
    return (_overlap(arguments) or found) if _spec.MUTATED else found


def _examine(arguments: tuple[Any, ...]) -> Admitted | str:
    """`admit`, for all that a signature tells."""
    if len(arguments) != len(_spec.PARAMETERS):
        return f"{len(arguments)} arguments were given, expected {len(_spec.PARAMETERS)}"
    devices = []
    for parameter, value in zip(_spec.PARAMETERS, arguments, strict=True):
        reason = _kind(parameter, value)
        if reason is not None:
            return reason
        if parameter["rank"] is not None:
            devices.append(value.device)
    if any(device != devices[0] for device in devices):
        return f"the tensors are on {', '.join(sorted({str(device) for device in devices}))}, verified on one device"
    reason = machine(devices[0]) if devices else "no argument is a tensor"
    if reason is not None:
        return reason
    axes = _spec.bind_axes(*arguments)
    if isinstance(axes, str):
        return axes
    for axis, value in axes.items():
        low, high = _spec.AXIS_RANGES[axis]
        if not low <= value <= high:
            return f"{axis} is {value}, verified from {low} to {high}"
    for parameter, value, strides in zip(_spec.PARAMETERS, arguments, _spec.strides(axes), strict=True):
        if parameter["rank"] is not None and not _laid_out(value, strides):
            verified = "contiguous tensors" if strides is None else f"strides {strides}"
            return f"{parameter['name']} is strided {tuple(value.stride())}, verified for {verified}"
    return Admitted(axes, _spec.output_shapes(axes), devices[0])


def _kind(parameter: dict[str, Any], value: Any) -> str | None:
    """Why `value` is nothing that this parameter was verified with."""
    name = parameter["name"]
    if value is None:
        return f"{name} is left out"
    if parameter["rank"] is None:
        return None if isinstance(value, (int, float)) else f"{name} is a {type(value).__name__}, expected a number"
    if not isinstance(value, torch.Tensor):
        return f"{name} is a {type(value).__name__}, expected a tensor"
    if value.device.type != _spec.DEVICE:
        return f"{name} is on {value.device.type}, verified on {_spec.DEVICE}"
    if value.dtype is not parameter["dtype"]:
        return f"{name} is {value.dtype}, verified for {parameter['dtype']}"
    return None


def _laid_out(value: torch.Tensor, strides: tuple[int, ...] | None) -> bool:
    """Whether a tensor lies in memory as it did when it was verified; the stride of an axis of one element is free."""
    if strides is None:
        return value.is_contiguous()
    return all(
        size == 1 or found == wanted for size, found, wanted in zip(value.shape, value.stride(), strides, strict=True)
    )


def machine(device: torch.device) -> str | None:
    """Why this machine is not of the kind on which the kernel was verified."""
    if device.type == "cuda":
        major, minor = torch.cuda.get_device_capability(device)
        found = f"sm_{major}{minor}"
    else:
        name = platform.machine().lower()
        found = _MACHINES.get(name, name)
    if found != _spec.ARCH.rstrip("af" if device.type == "cuda" else ""):
        return f"the architecture is {found}, verified on {_spec.ARCH}"
    for library, there in _libraries().items():
        verified = _spec.VERSIONS.get(library)
        if verified is not None and verified.split(".")[0] != there.split(".")[0]:
            return f"{library} is {there}, verified with {verified}"
    return None


def _libraries() -> dict[str, str]:
    """Versions of what the kernel runs on."""
    found = {"torch": torch.__version__}
    if _spec.LANGUAGE == "triton":
        try:
            import triton
        except ImportError:
            return found  # said when the kernel is loaded
        found["triton"] = triton.__version__
    return found


def _overlap(arguments: tuple[Any, ...]) -> str | None:
    """A mutated input that shares memory with another input: the kernel was verified on separate buffers."""
    for position in _spec.MUTATED:
        first, end = _addresses(arguments[position])
        for other, value in enumerate(arguments):
            if other == position or not isinstance(value, torch.Tensor):
                continue
            start, behind = _addresses(value)
            if start < end and first < behind:
                return f"{_spec.PARAMETERS[position]['name']} shares memory with {_spec.PARAMETERS[other]['name']}"
    return None


def _addresses(value: torch.Tensor) -> tuple[int, int]:
    """From the first byte of a tensor to the one behind its last; empty for a tensor without elements."""
    start = value.data_ptr()
    if value.numel() == 0:
        return start, start
    last = sum((size - 1) * stride for size, stride in zip(value.shape, value.stride(), strict=True))
    return start, start + (last + 1) * value.element_size()
