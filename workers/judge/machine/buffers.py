"""Shared buffers: slots, each with the tensors of one call.

The referee lays them out; the referee and one runner map them.

On a CPU a slot is a sealed memory file, which a runner cannot shrink to make the referee fault; on a GPU all slots of a
runner are parts of one allocation, which it opens through CUDA IPC. Every tensor has its own place between guard zones,
so that writing past either end is seen, and starts at another offset in each slot, so that pointers differ between
calls. Poison fills outputs and guards: for floating dtypes the 0xFF pattern is NaN, for integers 0xA5.
"""

from __future__ import annotations

import fcntl
import math
import mmap
import os
import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from warpsmith.kernels_db.job.memory import GUARD, PAGE, slot_bytes
from warpsmith.workers.judge.machine import gpu

ALIGNMENT = 64
"""Bytes: the alignment of torch's CPU allocator, and of a buffer unless its spec asks less."""
GPU_ALIGNMENT = 512
"""Bytes to which torch's CUDA allocator aligns."""
_INTEGER_POISON = 0xA5
_GUARD = 0xFFA5 - (1 << 16)
"""The two bytes of a guard: A5 FF.

They are NaN in float32, bfloat16 and float16 and huge in float64, so that reading a guard spoils a result too. They
differ from poison, so that poison written over a guard is seen.
"""


@dataclass(frozen=True)
class TensorSpec:
    """Name, shape, strides (elements) and dtype of one buffer.

    A scalar has `shape` None and its `value`. mutated: an input that `run` writes.
    """

    name: str
    shape: tuple[int, ...] | None
    strides: tuple[int, ...]
    dtype: torch.dtype
    value: float | int | bool | None = None
    alignment: int = ALIGNMENT
    mutated: bool = False

    @property
    def storage_elements(self) -> int:
        """Elements from the first to the last that the strides reach."""
        if self.shape is None or 0 in self.shape:
            return 0
        return 1 + sum((size - 1) * stride for size, stride in zip(self.shape, self.strides, strict=True))

    @property
    def storage_bytes(self) -> int:
        return self.storage_elements * self.dtype.itemsize

    @property
    def elements(self) -> int:
        return 0 if self.shape is None else math.prod(self.shape)


def contiguous_strides(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return the strides of a dense row-major tensor, in elements."""
    strides = [1] * len(shape)
    for axis in range(len(shape) - 2, -1, -1):
        strides[axis] = strides[axis + 1] * max(1, shape[axis + 1])
    return tuple(strides)


def poison_byte(dtype: torch.dtype) -> int:
    """Return a byte whose repetition no honest result holds.

    NaN for floating dtypes, a conspicuous number for integers.
    """
    return 0xFF if dtype.is_floating_point or dtype.is_complex else _INTEGER_POISON


def _skew(spec: TensorSpec, slot: int, number: int, own: int) -> int:
    """Return the bytes, below a page, by which a tensor starts off its page.

    Each slot has another multiple of the tensor's alignment.

    `own` is the allocator's alignment. A spec that promises less than that gets exactly what it promises, no more.
    """
    step = max(spec.alignment, own)
    skew = step * ((7 * slot + 3 * number) % 31) % (PAGE - own)
    return skew // step * step + (spec.alignment if spec.alignment < ALIGNMENT else 0)


def _rounded(size: int, to: int) -> int:
    return (size + to - 1) // to * to


@dataclass
class Slot:
    """Tensors for every input and output of one call, over `arena`.

    `fd` names it to a runner on a CPU; on a GPU `shared` does, of which it is the part from `base`.
    """

    size: int
    layout: list[tuple[TensorSpec, int]]
    arena: torch.Tensor = field(repr=False)
    fd: int | None = None
    shared: gpu.Shared | None = None
    base: int = 0

    def tensor(self, position: int) -> torch.Tensor:
        """Return the tensor at a position (inputs first, then outputs). Not for scalars."""
        spec = self.layout[position][0]
        assert spec.shape is not None
        if spec.elements == 0:
            return torch.empty(spec.shape, dtype=spec.dtype, device=self.arena.device)
        return self.storage(position).view(spec.dtype).as_strided(spec.shape, spec.strides)

    def extent(self, position: int) -> tuple[int, int]:
        """Return where in the arena a tensor's bytes begin, and how many there are."""
        spec, offset = self.layout[position]
        return offset, spec.storage_bytes

    def storage(self, position: int) -> torch.Tensor:
        """Return the raw bytes behind a tensor."""
        offset, size = self.extent(position)
        return self.arena[offset : offset + size]

    def poison(self, position: int) -> None:
        """Fill a tensor's storage with poison."""
        self.storage(position).fill_(poison_byte(self.layout[position][0].dtype))

    def leave_one(self, position: int, values: torch.Tensor, rng: random.Random) -> None:
        """Fill a contiguous tensor with values, but for one element, which stays poison."""
        spec = self.layout[position][0]
        if spec.elements == 0:
            return
        place = rng.randrange(spec.elements) * spec.dtype.itemsize
        self.tensor(position).copy_(values)
        self.storage(position)[place : place + spec.dtype.itemsize] = poison_byte(spec.dtype)

    def is_poison(self, position: int) -> bool:
        """Check whether a tensor's storage is as `poison` left it."""
        return bool((self.storage(position) == poison_byte(self.layout[position][0].dtype)).all())

    def _is_guard(self, start: int, end: int) -> bool:
        pattern = torch.tensor([_GUARD], dtype=torch.int16, device=self.arena.device).view(torch.uint8)
        found = self.arena[start:end]
        low, high = pattern.roll(start % 2)
        return bool((found[0::2] == low).all()) and bool((found[1::2] == high).all())

    def broken_guard(self) -> str | None:
        """Name the tensor beside which something wrote out of bounds, or None."""
        for spec, offset in self.layout:
            if spec.shape is None:
                continue
            end = offset + spec.storage_bytes
            if not (self._is_guard(offset - GUARD, offset) and self._is_guard(end, end + GUARD)):
                return spec.name
        return None


def layout_bytes(specs: list[TensorSpec]) -> int:
    """Return the bytes of one slot for these tensors, guards included."""
    return slot_bytes(spec.storage_bytes for spec in specs if spec.shape is not None)


def allocate(specs: list[TensorSpec], count: int, device: torch.device) -> list[Slot]:
    """Allocate and map slots, guards set, nothing else initialised.

    Raises OSError where memory is refused.
    """
    size = layout_bytes(specs)
    slots: list[Slot] = []
    try:
        if device.type == "cuda":
            shared = gpu.allocate(size * count)
            for number in range(count):
                arena = shared.tensor[number * size : (number + 1) * size]
                layout = _layout(specs, number, GPU_ALIGNMENT)
                slots.append(Slot(size, layout, arena, shared=shared, base=number * size))
        else:
            for number in range(count):
                fd, arena = _memory_file(number, size)
                slots.append(Slot(size, _layout(specs, number, ALIGNMENT), arena, fd=fd))
    except OSError:
        release(slots)
        raise
    for slot in slots:
        slot.arena.view(torch.int16).fill_(_GUARD)
    return slots


def fill(slot: Slot, inputs: Sequence[TensorSpec], outputs: int, values: Sequence[torch.Tensor | None]) -> None:
    """Copy values into a slot's inputs (None for scalars) and poison the rest.

    The rest is its outputs, which follow, and the gaps of strided inputs.
    """
    for position, (spec, value) in enumerate(zip(inputs, values, strict=True)):
        if value is None:
            continue
        if spec.storage_elements != spec.elements:
            slot.poison(position)
        axes = tuple(slice(0, 1) if stride == 0 else slice(None) for stride in spec.strides)  # broadcast: stored once
        slot.tensor(position)[axes].copy_(value[axes])
    for position in range(len(inputs), len(inputs) + outputs):
        slot.poison(position)


def release(slots: list[Slot]) -> None:
    """Give back what `allocate` made.

    A memory file goes once the last tensor over it is gone, a GPU's memory at once.
    """
    for slot in slots:
        if slot.fd is not None:
            os.close(slot.fd)
    for shared in {slot.shared for slot in slots if slot.shared is not None}:
        shared.release()


def retain(slots: list[Slot]) -> list[Slot]:
    """Return the same slots for one more runner on a GPU.

    `release` them as often as they were made and retained.
    """
    for shared in {slot.shared for slot in slots if slot.shared is not None}:
        shared.retain()
    return slots


def _layout(specs: list[TensorSpec], slot: int, own: int) -> list[tuple[TensorSpec, int]]:
    layout: list[tuple[TensorSpec, int]] = []
    position = GUARD
    for number, spec in enumerate(specs):
        if spec.shape is None:
            layout.append((spec, 0))
            continue
        layout.append((spec, position + _skew(spec, slot, number, own)))
        position += _rounded(spec.storage_bytes, PAGE) + 4 * GUARD
    return layout


def _memory_file(slot: int, size: int) -> tuple[int, torch.Tensor]:
    fd = os.memfd_create(f"slot{slot}", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        os.posix_fallocate(fd, 0, size)
        fcntl.fcntl(fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL)
        return fd, torch.frombuffer(mmap.mmap(fd, size, mmap.MAP_SHARED | mmap.MAP_POPULATE), dtype=torch.uint8)
    except OSError:
        os.close(fd)
        raise


def described(slot: Slot, specs: list[TensorSpec]) -> list[dict[str, Any]]:
    """Describe the layout of the slot for a runner.

    It has the scalars of `specs`, whose tensors are those of the slot.
    """
    items: list[dict[str, Any]] = []
    for spec, (_, offset) in zip(specs, slot.layout, strict=True):
        if spec.shape is None:
            items.append({"value": spec.value})
        else:
            items.append(
                {
                    "dtype": str(spec.dtype).removeprefix("torch."),
                    "shape": list(spec.shape),
                    "strides": list(spec.strides),
                    "elements": spec.storage_elements,
                    "offset": offset,
                    "mutated": spec.mutated,
                }
            )
    return items
