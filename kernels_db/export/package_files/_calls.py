"""The calls that `verify` makes: inside the envelope, beside it in one respect, and laid out in memory otherwise."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from typing import Any

import torch

from . import _compare, _load, _spec, selfcheck

MOST_SHAPES = 4


class Skipped(Exception):  # noqa: N818 - an outcome, no error
    """A check that this machine cannot do; the message says why."""


def device(workload: dict[str, Any]) -> str:
    """Where a workload is checked: PyTorch serves on the CPU where the kernel's device is not there."""
    wanted = _load.BY_NAME[workload["kernel"]].device
    return "cpu" if wanted == "cuda" and not torch.cuda.is_available() else wanted


def samples() -> list[tuple[dict[str, Any], list[Any]]]:
    """The verified workloads of the kernels for this machine from the smallest, with arguments."""
    ordered = sorted(selfcheck.checked_here(), key=lambda workload: workload["min_bytes"])
    if not ordered:
        raise Skipped(f"every verified workload is above the {_compare.most_bytes() >> 20} MiB that memory allows")
    taken = _apart(ordered)[:MOST_SHAPES]
    return [(workload, selfcheck.draw(workload, 1, device(workload))) for workload in taken]


def _apart(workloads: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Those of one device and one set of dtypes alone, each shape once: one compiled function has to take them all."""
    first = _load.BY_NAME[workloads[0]["kernel"]]
    alike = [each for each in workloads if _alike(_load.BY_NAME[each["kernel"]], first)]
    return list({json.dumps(each["inputs"]): each for each in alike}.values())


def _alike(kernel: _load.Kernel, other: _load.Kernel) -> bool:
    return (kernel.device, kernel.dtypes) == (other.device, other.dtypes)


def sizes(arguments: list[Any]) -> tuple[int, ...]:
    """The variable axes of a call; none where one is 0 or 1, which PyTorch compiles apart, whatever the op."""
    axes = _spec.bind_axes(*arguments)
    found = tuple(axes[axis] for axis in _spec.VARIABLE_AXES) if isinstance(axes, dict) else ()
    return found if min(found, default=0) > 1 else ()


def other_dtypes() -> Iterator[tuple[str, list[Any]]]:
    """A call in a floating dtype that was not verified, and which."""
    _, arguments = samples()[-1]
    verified = {dtype for kernel in _load.KERNELS for dtype in kernel.dtypes}
    other = next((dtype for dtype in (torch.float64, torch.float32, torch.float16) if dtype not in verified), None)
    if other is not None and any(isinstance(a, torch.Tensor) and a.is_floating_point() for a in arguments):
        changed = [a.to(other) if isinstance(a, torch.Tensor) and a.is_floating_point() else a for a in arguments]
        yield str(other), changed


def other_sizes() -> Iterator[tuple[str, list[Any]]]:
    """Calls with one axis longer than any that was verified, and which: each made of the sample that makes the smallest
    such call, where memory holds it; of those with no other axis of size 1, which PyTorch compiles apart, if there are.
    """
    drawn = [arguments for _, arguments in samples()]
    for axis in _spec.VARIABLE_AXES:
        sized = [(_one_beside(arguments, axis), _grown_bytes(arguments, axis), arguments) for arguments in drawn]
        fitting = [each for each in sized if each[1] <= _compare.most_bytes()]
        if not fitting:
            continue
        arguments = min(fitting, key=lambda each: each[:2])[2]
        grown = [_grown(p, a, axis) for p, a in zip(_spec.PARAMETERS, arguments, strict=True)]
        axes = _spec.bind_axes(*grown)
        if isinstance(axes, dict) and axes[axis] > _longest(axis):
            yield f"{axis} = {axes[axis]}", grown


def _one_beside(arguments: list[Any], axis: str) -> bool:
    """Whether an axis other than `axis` has size 1, or none."""
    axes = _spec.bind_axes(*arguments)
    return isinstance(axes, dict) and any(axes[name] < 2 for name in _spec.VARIABLE_AXES if name != axis)


def other_numbers() -> Iterator[tuple[str, list[Any]]]:
    """Calls with one number that was not verified, and which."""
    _, arguments = samples()[-1]
    for position in _spec.NUMBERS:
        value = arguments[position]
        if isinstance(value, float) and value * 1.5 != value:  # an integer may be an axis to sum along, or a size
            changed = [*arguments[:position], value * 1.5, *arguments[position + 1 :]]
            if tuple(changed[each] for each in _spec.NUMBERS) not in [n for k in _load.KERNELS for n in k.numbers]:
                yield f"{_spec.PARAMETERS[position]['name']} = {value * 1.5}", changed


def _longest(axis: str) -> int:
    return max(kernel.ranges[axis][1] for kernel in _load.KERNELS)


def _grown(parameter: dict[str, Any], value: Any, axis: str) -> Any:
    """`value` repeated along `axis` until it is longer than any that was verified."""
    for position, times in _repeats(parameter, value, axis):
        value = torch.cat([value] * times, position)
    return value


def _grown_bytes(arguments: list[Any], axis: str) -> int:
    """Of the tensors among `arguments`, grown."""
    total = 0
    for parameter, value in zip(_spec.PARAMETERS, arguments, strict=True):
        if isinstance(value, torch.Tensor):
            times = math.prod(times for _, times in _repeats(parameter, value, axis))
            total += value.numel() * value.element_size() * times
    return total


def _repeats(parameter: dict[str, Any], value: Any, axis: str) -> list[tuple[int, int]]:
    """Where `axis` stands in a tensor's shape, and how often the tensor is repeated there to be longer than any that
    was verified.
    """
    if parameter["rank"] is None:
        return []
    positions = [position for position, name in enumerate(parameter["shape"]) if name == axis]
    return [(position, _longest(axis) // value.shape[position] + 1) for position in positions]


def strided(value: Any) -> Any:
    """The same values, every other element in memory."""
    if not isinstance(value, torch.Tensor) or value.dim() == 0:
        return value
    wide = torch.empty((*value.shape[:-1], 2 * value.shape[-1]), dtype=value.dtype, device=value.device)
    return wide[..., ::2].copy_(value)


def unaligned(value: Any) -> Any:
    """The same values, one element behind where the allocator would have put them."""
    if not isinstance(value, torch.Tensor):
        return value
    strides = value.stride()
    reach = 1 + sum((size - 1) * stride for size, stride in zip(value.shape, strides, strict=True))
    buffer = torch.empty(reach + 1, dtype=value.dtype, device=value.device)
    return _compare.filled(buffer.as_strided(value.shape, strides, 1), value)
