"""What the kernels may be called with: the envelope on which each was verified, and nothing beside it.

A call's shapes, strides, dtypes, devices and numbers are looked at once and remembered; addresses are looked at in
every call. Where several kernels admit a call, the first is the one that is to be expected fastest. Each is judged by
the verified and timed shape of its own that is nearest to the call's: fewer octaves away go first, and within as many
octaves the one that came closer to the physical limit there.
"""

from __future__ import annotations

import importlib.metadata
import math
import platform
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import torch

from . import _axis_relations, _load, _plans, _spec

MOST_REMEMBERED = 1024
"""Signatures of calls; when there are more, all are forgotten."""
LARGEST_COPIED = 256 << 20
"""Bytes of a tensor on a GPU that is copied to an aligned address; PyTorch serves a call with a larger one."""
ROUNDING = 1e-9
"""Octaves that a sum of logarithms may be off: twice the size is one octave away, not two."""
_MACHINES = {"amd64": "x86_64", "arm64": "aarch64"}
_NUMBERS = {value for kernel in _load.KERNELS for values in kernel.numbers for value in values}
"""Every number that any kernel was verified with. Of another one a signature holds the type alone: it changes nothing,
and there may be as many of them as calls."""


@dataclass(frozen=True, slots=True)
class Admitted:
    """A call that a kernel can serve: its axes, and what it allocates.

    outputs: of each output a tensor of its shape, dtype and device without any memory: `empty_like` of one costs half
    of what `empty` does, which reads its arguments anew. one_device: no other device can be the current one.
    plans: what is known of the call's launch plan. copies: some tensors start where none did when the kernel was
    verified, and it is given copies.
    """

    kernel: _load.Kernel
    axes: dict[str, int]
    outputs: list[torch.Tensor]
    device: torch.device
    one_device: bool
    plans: _plans.State = field(default_factory=_plans.State, compare=False)
    copies: bool = False

    def allocate(self) -> list[torch.Tensor]:
        """Contiguous, uninitialised outputs for one call."""
        return [torch.empty_like(like, memory_format=torch.contiguous_format) for like in self.outputs]


class Timed(NamedTuple):
    """A shape at which a kernel was timed: its axes, microseconds, the figure that kernels are compared by (smaller is
    faster), and within how many octaves of a call it lies.
    """

    axes: dict[str, int]
    us: float
    figure: float
    octaves: int


_RELATIONS = {"==": "{} is {}", "<=": "{} is at most {}", "%": "{} is a multiple of {}"}
_remembered: dict[tuple[Any, ...], tuple[Admitted, ...] | str] = {}


def admit(arguments: tuple[Any, ...]) -> tuple[Admitted, ...] | str:
    """The call as each kernel can serve it, the one to be preferred first; otherwise why none can."""
    key: list[Any] = []
    for value in arguments:
        if isinstance(value, torch.Tensor):
            try:
                key += (value.shape, value.stride(), value.dtype, value.device)
            except RuntimeError:  # a layout without strides: cheaper than to ask every tensor for its layout
                return f"a tensor's layout is {value.layout}, verified for {torch.strided}"
        else:
            key.append(value if isinstance(value, (int, float)) and value in _NUMBERS else type(value))
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
            if not may_be_copied(position, arguments[position]):
                name = _spec.PARAMETERS[position]["name"]
                return f"{name} does not start at a multiple of {alignment} bytes, as it did when it was verified"
            if not found[0].copies:
                found = tuple(replace(each, copies=True) for each in found)
    return (_overlap(arguments) or found) if _spec.MUTATED else found


def may_be_copied(position: int, value: torch.Tensor) -> bool:
    """Whether the kernel may be given a copy of a tensor: on a CPU weights are often mapped from a file and lie
    anywhere; on a GPU PyTorch's own attention reads such tensors wrongly (pytorch/pytorch#183484), so PyTorch is no
    refuge. What the kernel writes must be the caller's own.
    """
    if position in _spec.MUTATED or not value.is_contiguous():
        return False
    return value.device.type == "cpu" or value.numel() * value.element_size() <= LARGEST_COPIED


def aligned(arguments: tuple[Any, ...]) -> tuple[Any, ...]:
    """The arguments, with copies of those that start at no multiple of their alignment: PyTorch's allocator does."""
    found = list(arguments)
    for position, alignment in _spec.ALIGNMENTS:
        if found[position].data_ptr() % alignment:
            found[position] = found[position].clone(memory_format=torch.contiguous_format)
    return tuple(found)


def _examine(arguments: tuple[Any, ...]) -> tuple[Admitted, ...] | str:
    """`admit`, for all that a signature tells."""
    if len(arguments) != len(_spec.PARAMETERS):
        return f"{len(arguments)} arguments were given, expected {len(_spec.PARAMETERS)}"
    found = {kernel.name: _fit(kernel, arguments) for kernel in _load.KERNELS}
    admitted = [each for each in found.values() if isinstance(each, Admitted)]
    if admitted:
        return tuple(sorted(admitted, key=_expected))
    if len(set(found.values())) == 1:
        return str(next(iter(found.values())))
    return "; ".join(f"{name}: {reason}" for name, reason in found.items())


def _expected(admitted: Admitted) -> tuple[float, float]:
    """What the kernels that admit a call are sorted by: octaves to the nearest shape at which each was timed, then its
    figure there. A figure says little of a shape far from its own, so it decides among kernels that were timed as near
    alone; one without a time comes last, as does a further configuration of a kernel where it does not lead.
    """
    nearest = nearest_timed(admitted)
    if nearest is None:
        return (math.inf, math.inf)
    leads = admitted.kernel.leads
    if leads is not None and nearest.axes not in leads:
        return (math.inf, nearest.figure)
    return (nearest.octaves, nearest.figure)


def nearest_timed(admitted: Admitted) -> Timed | None:
    """The shape nearest to the call's at which the kernel was timed. Distance: the ratios of the axes as powers of two,
    added up. Whole octaves, rounded up: the call's own shape counts as one, as does all up to twice or half its size.
    """
    if not admitted.kernel.timed:
        return None
    away, (axes, us, figure) = min(
        ((_distance(timed[0], admitted.axes), timed) for timed in admitted.kernel.timed), key=lambda each: each[0]
    )
    return Timed(axes, us, figure, max(1, math.ceil(away - ROUNDING)))


def _distance(one: dict[str, int], other: dict[str, int]) -> float:
    return sum(abs(math.log2(max(size, 1)) - math.log2(max(other[name], 1))) for name, size in one.items())


def _fit(kernel: _load.Kernel, arguments: tuple[Any, ...]) -> Admitted | str:
    """The call as this kernel can serve it, otherwise why it cannot."""
    devices = []
    for parameter, dtype, value in zip(_spec.PARAMETERS, kernel.dtypes, arguments, strict=True):
        reason = _kind(parameter, dtype, value, kernel.device)
        if reason is not None:
            return reason
        if parameter["rank"] is not None:
            devices.append(value.device)
    if any(device != devices[0] for device in devices):
        return f"the tensors are on {', '.join(sorted({str(device) for device in devices}))}, verified on one device"
    reason = machine(kernel, devices[0]) if devices else "no argument is a tensor"
    if reason is not None:
        return reason
    axes = _spec.bind_axes(*arguments)
    if isinstance(axes, str):
        return axes
    for axis, value in axes.items():
        low, high = kernel.ranges[axis]
        if not low <= value <= high:
            return f"{axis} is {value}, verified from {low} to {high}"
        if value % kernel.steps[axis]:
            return f"{axis} is {value}, verified for multiples of {kernel.steps[axis]}"
    for relation in kernel.relations:
        if not _axis_relations.holds(relation, axes):
            one, how, other = relation
            found = f"{one} is {axes[one]} and {other} {axes[other]}"
            return f"{found}, verified where {_RELATIONS[how].format(one, other)}"
    for parameter, value, strides in zip(_spec.PARAMETERS, arguments, _spec.strides(axes), strict=True):
        if parameter["rank"] is not None and not _laid_out(value, strides):
            verified = "contiguous tensors" if strides is None else f"strides {strides}"
            return f"{parameter['name']} is strided {tuple(value.stride())}, verified for {verified}"
    reason = _numbers(kernel, arguments)
    if reason is not None:
        return reason
    shapes = zip(_spec.output_shapes(axes), kernel.outputs, strict=True)
    outputs = [_shaped(shape, dtype, devices[0]) for shape, dtype in shapes]
    return Admitted(kernel, axes, outputs, devices[0], devices[0].type != "cuda" or torch.cuda.device_count() == 1)


def _shaped(shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    """A tensor to allocate others like. It is remembered, so it must hold no memory: a first call may come under graph
    capture, whose pool has to be empty in the end.
    """
    like = torch.empty((), dtype=dtype, device=device).expand(shape)
    like.untyped_storage().resize_(0)
    return like


def _numbers(kernel: _load.Kernel, arguments: tuple[Any, ...]) -> str | None:
    """Why the numbers of a call are none that the kernel was verified with, all of them together."""
    given = tuple(arguments[position] for position in _spec.NUMBERS)
    if not given or given in kernel.numbers:
        return None
    names = ", ".join(_spec.PARAMETERS[position]["name"] for position in _spec.NUMBERS)
    verified = " or ".join(", ".join(map(str, values)) for values in kernel.numbers)
    return f"{names}: found another value than was verified ({verified})"


def _kind(parameter: dict[str, Any], dtype: Any, value: Any, device: str) -> str | None:
    """Why `value` is nothing that this parameter was verified with."""
    name = parameter["name"]
    if value is None:
        return f"{name} is left out"
    if parameter["rank"] is None:
        return None if isinstance(value, (int, float)) else f"{name} is a {type(value).__name__}, expected a number"
    if not isinstance(value, torch.Tensor):
        return f"{name} is a {type(value).__name__}, expected a tensor"
    if value.device.type != device:
        return f"{name} is on {value.device.type}, verified on {device}"
    if value.dtype is not dtype:
        return f"{name} is {value.dtype}, verified for {dtype}"
    return None


def _laid_out(value: torch.Tensor, strides: tuple[int, ...] | None) -> bool:
    """Whether a tensor lies in memory as it did when it was verified; the stride of an axis of one element is free."""
    if strides is None:
        return value.is_contiguous()
    return all(
        size == 1 or found == wanted for size, found, wanted in zip(value.shape, value.stride(), strides, strict=True)
    )


def machine(kernel: _load.Kernel, device: torch.device) -> str | None:
    """Why this machine is not of the kind on which the kernel was verified."""
    if device.type == "cuda":
        major, minor = torch.cuda.get_device_capability(device)
        found = f"sm_{major}{minor}"
    else:
        name = platform.machine().lower()
        found = _MACHINES.get(name, name)
    if found != kernel.arch.rstrip("af" if device.type == "cuda" else ""):
        return f"the architecture is {found}, verified on {kernel.arch}"
    return other_version(kernel)


# Gluon's names change from one minor version of Triton to the next, CuTe DSL's from one of its own, and TileLang's with
# each release.
_PARTS = {("gluon", "triton"): 2, ("cute", "nvidia-cutlass-dsl"): 2, ("tilelang", "tilelang"): 3}


def other_version(kernel: _load.Kernel) -> str | None:
    """Which library has another version here than the kernel was verified with; None where none has."""
    for library, there in _libraries(kernel).items():
        verified = kernel.versions.get(library)
        parts = _PARTS.get((kernel.language, library), 1)
        if verified is not None and verified.split(".")[:parts] != there.split(".")[:parts]:
            return f"{library} is {there}, verified with {verified}"
    return None


def elsewhere(kernel: _load.Kernel) -> str | None:
    """Why this machine is none that the kernel is for; None where it is."""
    if kernel.device == "cuda" and not torch.cuda.is_available():
        return "there is no GPU here"
    return machine(kernel, torch.device(kernel.device, 0) if kernel.device == "cuda" else torch.device("cpu"))


def _libraries(kernel: _load.Kernel) -> dict[str, str]:
    """Versions of what the kernel runs on."""
    found = {"torch": torch.__version__}
    if kernel.language in ("triton", "gluon"):
        try:
            import triton
        except ImportError:
            return found  # said when the kernel is loaded
        found["triton"] = triton.__version__
    library = {"cute": "nvidia-cutlass-dsl", "tilelang": "tilelang"}.get(kernel.language)
    if library is not None:
        try:
            found[library] = importlib.metadata.version(library)
        except importlib.metadata.PackageNotFoundError:
            return found  # said when the kernel is loaded
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
