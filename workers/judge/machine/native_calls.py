"""Record the calls that one `run` makes of a candidate's C++ functions, with the memory that each call is given.

This runs in the runner. A record says all that another process needs to make the same call: numbers as they are,
pointers as places in buffers, and what each buffer held before the call. Buffers end where tensors end.
"""

from __future__ import annotations

import ctypes
import mmap
import os
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

from warpsmith.kernels_db.runtime import cpp

MOST_CALLS = 64
TRACE_BYTES = 64 << 20
"""Calls of a trace, and bytes of memory that it keeps."""


class _TooLong(Exception):  # noqa: N818 - named for what happened
    """The calls do not fit a trace."""


def record(call: Callable[[], object], module: ModuleType, tensors: Sequence[Any], fd: int) -> dict[str, Any]:
    """Run `call`, writing what buffers held into a file of TRACE_BYTES, which is closed.

    Returns {"calls"}, or {"skipped"} with why there is no trace. `tensors` are those of the slot: each is a buffer of
    its own, although all lie in one storage.
    """
    names = {
        id(function): (name, function.name)
        for name, kernels in vars(module).items()
        if isinstance(kernels, cpp.Kernels)
        for function in vars(kernels).values()
    }
    memory = mmap.mmap(fd, TRACE_BYTES)
    os.close(fd)
    trace = _Trace([_extent(tensor) for tensor in tensors if hasattr(tensor, "data_ptr")], memory)
    plain = cpp.Function.__call__

    def recorded(function: cpp.Function, *arguments: Any) -> None:
        if id(function) in names:
            trace.add(names[id(function)], arguments)
        plain(function, *arguments)

    cpp.Function.__call__ = recorded  # type: ignore[method-assign, assignment]
    try:
        call()
    except _TooLong as long:
        return {"skipped": str(long)}
    finally:
        cpp.Function.__call__ = plain  # type: ignore[method-assign]
    return {"calls": trace.calls}


class _Trace:
    def __init__(self, extents: list[tuple[int, int]], memory: Any) -> None:
        self._extents = extents
        self._memory = memory
        self._used = 0
        self.calls: list[dict[str, Any]] = []

    def add(self, name: tuple[str, str], arguments: Sequence[Any]) -> None:
        if len(self.calls) == MOST_CALLS:
            raise _TooLong(f"`run` makes more than {MOST_CALLS} calls")
        buffers: dict[tuple[int, int], int] = {}
        given: list[list[Any]] = []
        for argument in arguments:
            if argument is None or (hasattr(argument, "data_ptr") and argument.data_ptr() == 0):
                given.append(["null"])
            elif hasattr(argument, "data_ptr"):
                extent = self._buffer(argument)
                number = buffers.setdefault(extent, len(buffers))
                given.append(["pointer", number, argument.data_ptr() - extent[0]])
            else:
                given.append(["number", float(argument).hex() if isinstance(argument, float) else int(argument)])
        kept = [[start % 64, size, self._keep(start, size)] for start, size in buffers]
        self.calls.append({"kernels": name[0], "function": name[1], "buffers": kept, "arguments": given})

    def _buffer(self, tensor: Any) -> tuple[int, int]:
        address = tensor.data_ptr()
        for start, size in self._extents:
            if start <= address < start + max(size, 1):
                return start, size
        storage = tensor.untyped_storage()
        return storage.data_ptr(), storage.nbytes()

    def _keep(self, start: int, size: int) -> int:
        place, self._used = self._used, self._used + size
        if self._used > len(self._memory):
            raise _TooLong(f"its calls are given more than {TRACE_BYTES >> 20} MiB of memory")
        self._memory[place : self._used] = ctypes.string_at(start, size)
        return place


def _extent(tensor: Any) -> tuple[int, int]:
    """Return the first byte of a tensor and the bytes from its first element to its last."""
    if tensor.numel() == 0:
        return tensor.data_ptr(), 0
    last = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    return tensor.data_ptr(), (last + 1) * tensor.element_size()
