"""What a candidate's `run` launches, noted while it runs: what a launch plan is made from.

`cpp` and `cuda` tell the recorder of their own thread of each launch before they make it, and `triton_recording` does
so for Triton. Elsewhere, and when nothing records, a launch costs a look at an empty dictionary.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Literal

_MASK = (1 << 64) - 1
COOPERATIVE, CLUSTER, PROGRAMMATIC = 2, 4, 6
"""Numbers of a launch's attributes, by cuda.h."""

Attribute = tuple[int, int, int, int]
"""An attribute's number and up to three values."""
Extents = tuple[int, int, int]


@dataclass(frozen=True)
class Number:
    """A number as its parameter holds it. bits: of the value, sign-extended to 64; floating: how C passes it."""

    bits: int
    floating: bool = False


@dataclass(frozen=True)
class Pointer:
    """An address in some tensor's memory; 0 is none."""

    address: int


@dataclass(frozen=True)
class Map:
    """A tensor map: its 128 bytes, the address of its tensor, which they hold too, and what it was made of."""

    address: int
    template: bytes
    options: tuple[Any, ...] = ()


@dataclass(frozen=True)
class Launch:
    """One launch. function: the address of a C function, or the driver's handle of a kernel.

    shared: bytes of dynamic shared memory of one block; grid and block are empty for a C function.
    sizes: bytes of each of a GPU kernel's parameters; the last `trailing` of them it may lack. handle: which of the
        driver's two kinds of handle `function` is.
    """

    kind: Literal["c", "cuda"]
    name: str
    function: int
    arguments: tuple[Number | Pointer | Map, ...]
    grid: Extents | tuple[()] = ()
    block: Extents | tuple[()] = ()
    shared: int = 0
    attributes: tuple[Attribute, ...] = ()
    sizes: tuple[int, ...] = ()
    trailing: int = 0
    handle: Literal["kernel", "function"] = "kernel"


@dataclass
class Recorder:
    """What one call of `run` did, in order: launches, and what else its maker adds.

    refusal: why no plan can be made of it; the first reason stays.
    """

    events: list[Any] = field(default_factory=list)
    refusal: str | None = None
    maps: dict[int, tuple[Any, Map]] = field(default_factory=dict)
    """Tensor maps that were made, by the identity of cuda-core's object, which is held here."""

    def refuse(self, reason: str) -> None:
        """Say why no plan can be made."""
        self.refusal = self.refusal or reason


active: dict[int, Recorder] = {}
"""The recorders by the threads that record."""


def current() -> Recorder | None:
    """Return the recorder of this thread, where it has one."""
    return active.get(threading.get_ident())


@contextmanager
def recording(recorder: Recorder) -> Iterator[Recorder]:
    """Let this thread's launches be noted inside the block. Raises RuntimeError where they are already."""
    thread = threading.get_ident()
    if thread in active:
        raise RuntimeError("found a recording in this thread, expected none")
    active[thread] = recorder
    try:
        yield recorder
    finally:
        del active[thread]


def number(value: float, scalar: type) -> Number:
    """Return a number as the C type `scalar`, one of `calls.C_TYPES`, holds it."""
    if scalar in (ctypes.c_float, ctypes.c_double):
        return Number(int.from_bytes(bytes(scalar(value)), "little"), floating=True)
    return Number(int(value) & _MASK)


def note_c_function(name: str, pointer: Any, scalars: Sequence[type | None], values: Sequence[Any]) -> None:
    """Note a call of a C function. scalars: the C type of each argument, None for an address."""
    recorder = current()
    if recorder is None:
        return
    address = ctypes.cast(pointer, ctypes.c_void_p).value or 0
    arguments = tuple(
        Pointer(value) if scalar is None else number(value, scalar)
        for scalar, value in zip(scalars, values, strict=True)
    )
    recorder.events.append(Launch("c", name, address, arguments))


def note_cuda(name: str, kernel: Any, asked: Any, values: Sequence[Any]) -> None:
    """Note a launch by cuda-core. asked: `limits.Launch`; values: as cuda-core's launch takes them."""
    recorder = current()
    if recorder is None:
        return
    arguments: list[Number | Pointer | Map] = []
    for value in values:
        if isinstance(value, int):
            arguments.append(Pointer(value))
        elif isinstance(value, ctypes._SimpleCData):
            arguments.append(Number(int.from_bytes(bytes(value), "little")))
        elif (made := recorder.maps.get(id(value))) is not None:
            arguments.append(made[1])
        else:
            recorder.refuse(f"{name} takes a tensor map that run did not make in this call")
            return
    attributes: list[Attribute] = [(COOPERATIVE, 1, 0, 0)] if asked.cooperative else []
    if asked.cluster is not None:
        attributes.append((CLUSTER, *asked.cluster))
    recorder.events.append(
        Launch(
            "cuda",
            name,
            int(kernel.handle),
            tuple(arguments),
            asked.grid,
            asked.block,
            asked.shared_bytes,
            tuple(attributes),
            tuple(map(_size, values)),
        )
    )


def _size(value: Any) -> int:
    """Bytes of a parameter that takes `value`: an address, a number of C's, or a tensor map."""
    if isinstance(value, int):
        return 8
    return ctypes.sizeof(value) if isinstance(value, ctypes._SimpleCData) else 128
