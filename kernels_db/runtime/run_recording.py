"""One call of a kernel's `run`, written down as steps that need no Python: what a launch plan is made of.

The launches come from the runtime, and what `run` does with PyTorch from a dispatch mode: it may allocate scratch, take
views, and fill outputs and scratch with zeros; whatever else computes has no place in a plan. Addresses become a tensor
of the call and an offset in bytes, so the steps of two calls with different tensors are equal exactly where nothing but
the tensors differs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from . import triton_recording
from .launch_parameters import mismatch
from .recording import Launch, Map, Number, Pointer, Recorder, recording

ALLOCATE, ZERO, CALL, LAUNCH = range(4)
"""What a step does, by the extension's numbers."""
NUMBER, POINTER, MAP = range(3)
"""What an argument of a launch is, likewise."""
_EMPTY = {"aten::empty", "aten::empty_strided", "aten::empty_like", "aten::new_empty", "aten::new_empty_strided"}
_ZEROS = {"aten::zeros", "aten::zeros_like", "aten::new_zeros"}
_FILLS = {"aten::zero_", "aten::fill_"}

Piece = tuple[int, bool, int, int, int, bytes]
"""An argument of a launch: what it is, whether C passes it as a floating value, slot, offset, bits, tensor map."""
Step = tuple[int, int, int, tuple[int, ...], tuple[int, ...], int, tuple[tuple[int, ...], ...], bool, tuple[Piece, ...]]
"""What is done, slot, function, grid, block, shared bytes, attributes, whether `function` is the driver's handle of a
kernel (and not of a function), arguments.
"""


@dataclass(frozen=True)
class Scratch:
    """Memory that `run` allocates in each call."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: torch.dtype
    device: torch.device
    zeros: bool


@dataclass(frozen=True)
class Recorded:
    """What one call does. Slots: the arguments, then the outputs, then `scratch`, each by its position.

    maps: what each tensor map was made of; their bytes, which hold an address, are no part of a comparison.
    """

    steps: tuple[Step, ...]
    scratch: tuple[Scratch, ...]
    maps: tuple[tuple[Any, ...], ...] = ()

    def same_as(self, other: Recorded) -> bool:
        """Whether both calls did the same, each with its own tensors."""
        return (self.scratch, self.maps) == (other.scratch, other.maps) and self._bare() == other._bare()

    def _bare(self) -> list[tuple[Any, ...]]:
        return [(*step[:-1], [piece[:-1] for piece in step[-1]]) for step in self.steps]


def record(run: Callable[..., Any], arguments: Sequence[Any], outputs: Sequence[torch.Tensor]) -> Recorded | str:
    """Call `run` with these, each tensor in memory of its own, and return what it did; or why no plan can be made."""
    watching = _Watching(arguments, outputs)
    with recording(watching.recorder), triton_recording.noted(), watching:
        run(*arguments, *outputs)
    if watching.recorder.refusal is not None:
        return watching.recorder.refusal
    return watching.written_down()


class _Watching(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Notes what PyTorch is asked for while `run` is recorded, and holds all of its memory until it is forgotten."""

    def __init__(self, arguments: Sequence[Any], outputs: Sequence[torch.Tensor]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.recorder = Recorder()
        self.tensors: list[Any] = [*arguments, *outputs]
        self.scratch: list[Scratch] = []
        self._arguments = len(arguments)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        name = func._schema.name
        if name in _EMPTY | _ZEROS:
            self._allocated(result, name)
        elif name in _FILLS:
            self._filled(name, args)
        elif not _is_view(func._schema):
            self.recorder.refuse(f"run calls PyTorch's {name.removeprefix('aten::')}, which a plan cannot repeat")
        return result

    def _allocated(self, made: torch.Tensor, name: str) -> None:
        if made.layout is not torch.strided or made.numel() == 0:
            self.recorder.refuse("run allocates a tensor without memory of its own")
            return
        self.recorder.events.append((ALLOCATE, len(self.tensors)))
        self.tensors.append(made)
        zeros = name in _ZEROS
        self.scratch.append(Scratch(tuple(made.shape), made.stride(), made.dtype, made.device, zeros))

    def _filled(self, name: str, args: Sequence[Any]) -> None:
        """A tensor is set to zero: part of a plan where it is a whole output or scratch."""
        filled = args[0]
        if name == "aten::fill_" and (isinstance(args[1], torch.Tensor) or args[1] != 0):
            self.recorder.refuse("run fills a tensor with something other than zeros")
            return
        for slot, tensor in enumerate(self.tensors):
            whole = isinstance(tensor, torch.Tensor) and tensor.is_contiguous() and filled.is_contiguous()
            if whole and tensor.data_ptr() == filled.data_ptr() and tensor.nbytes == filled.nbytes:
                if slot < self._arguments:
                    break
                self.recorder.events.append((ZERO, slot))
                return
        self.recorder.refuse("run fills a part of a tensor, or an argument")

    def written_down(self) -> Recorded | str:
        """Return the events as steps; or why an argument of a launch is of no tensor of this call."""
        steps: list[Step] = []
        maps = []
        for event in self.recorder.events:
            if not isinstance(event, Launch):
                act, slot = event
                steps.append((act, slot, 0, (0, 0, 0), (0, 0, 0), 0, (), False, ()))
                continue
            pieces = []
            for argument in event.arguments:
                piece = self._piece(argument)
                if piece is None:
                    return f"{event.name} takes an address that belongs to no tensor of the call"
                pieces.append(piece)
                if isinstance(argument, Map):
                    maps.append(argument.options)
            act = CALL if event.kind == "c" else LAUNCH
            if act == LAUNCH and (reason := mismatch(event)) is not None:
                return reason
            grid, block = event.grid or (0, 0, 0), event.block or (0, 0, 0)
            kernel = act == LAUNCH and event.handle == "kernel"
            steps.append((act, 0, event.function, grid, block, event.shared, event.attributes, kernel, tuple(pieces)))
        if not any(step[0] in (CALL, LAUNCH) for step in steps):
            return "run launches nothing that was seen"
        return Recorded(tuple(steps), tuple(self.scratch), tuple(maps))

    def _piece(self, argument: Number | Pointer | Map) -> Piece | None:
        if isinstance(argument, Number):
            return (NUMBER, argument.floating, 0, 0, argument.bits, b"")
        if argument.address == 0:
            return (NUMBER, False, 0, 0, 0, b"")
        place = self._place(argument.address)
        if place is None:
            return None
        if isinstance(argument, Pointer):
            return (POINTER, False, *place, 0, b"")
        return (MAP, False, *place, 0, argument.template)

    def _place(self, address: int) -> tuple[int, int] | None:
        """The tensor that an address lies in, and how many bytes behind its first element."""
        for slot, tensor in enumerate(self.tensors):
            if isinstance(tensor, torch.Tensor):
                start = tensor.data_ptr()
                if start <= address < start + extent(tensor):
                    return slot, address - start
        return None


def extent(tensor: torch.Tensor) -> int:
    """Return the bytes from a tensor's first element to behind its last."""
    if tensor.numel() == 0:
        return 0
    last = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    return (last + 1) * tensor.element_size()


def _is_view(schema: Any) -> bool:
    """Whether an operator returns its arguments' memory and writes to none of it."""
    written = any(a.alias_info is not None and a.alias_info.is_write for a in schema.arguments)
    return not written and bool(schema.returns) and all(r.alias_info is not None for r in schema.returns)
