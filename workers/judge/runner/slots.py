"""The memory that a runner's `run` reads and writes: slots of arguments and outputs in the referee's buffers.

On a CPU a slot is a mapping of its own, whose pages can be closed to writes; on a GPU a part of memory that the referee
shares by a handle.
"""

from __future__ import annotations

import mmap
import os
from typing import Any

from warpsmith.workers.judge.machine import gpu, process_control
from warpsmith.workers.judge.runner.outputs import bound


class Slots:
    """The bound slots of one runner, by their number in the order in which they were bound."""

    def __init__(self) -> None:
        self.bound: list[tuple[list[Any], list[Any]]] = []  # arguments, output tensors
        self.arenas: list[Any] = []  # the bytes of each slot
        self.inputs_closed = False  # during the calls that close a slot
        self._memory: list[tuple[int, int]] = []  # of each slot on a CPU: address, bytes
        self._results: list[list[tuple[int, int]]] = []  # of each slot what `run` writes: address, bytes
        self._closed: int | None = None  # the slot that cannot be written to, or not everywhere
        self._opened: dict[str, tuple[int, Any]] = {}  # the referee's device memory, by its handle

    def bind(self, message: dict[str, Any], received: list[int], *, candidate: bool) -> None:
        """Map one more slot, whose descriptor came with the message on a CPU, and build its tensors.

        A candidate takes its outputs as arguments, after its inputs.
        """
        arena = self._open(message, received)
        # AOTAutograd compiles no writes to an input that shares its storage with one of another dtype.
        inputs = [bound(arena, item, own_storage=not candidate) for item in message["inputs"]]
        outputs = [bound(arena, item) for item in message["outputs"]]
        self.bound.append((inputs + outputs if candidate else inputs, outputs))
        written = [item for item in message["inputs"] if item.get("mutated")] + message["outputs"]
        self._results.append([_memory_of(arena, item) for item in written if item["elements"]])
        self.arenas.append(arena)

    def _open(self, message: dict[str, Any], received: list[int]) -> Any:
        """Return the slot's memory as a tensor of bytes."""
        import torch  # noqa: PLC0415

        if "handle" in message:
            if message["handle"] not in self._opened:
                handle = bytes.fromhex(message["handle"])
                self._opened[message["handle"]] = gpu.open_shared(handle, message["total"])
            whole = self._opened[message["handle"]][1]
            return whole[message["base"] : message["base"] + message["bytes"]]
        fd = received.pop()
        try:
            arena = mmap.mmap(
                fd, message["bytes"], mmap.MAP_SHARED | mmap.MAP_POPULATE, mmap.PROT_READ | mmap.PROT_WRITE
            )
        finally:
            os.close(fd)
        whole = torch.frombuffer(arena, dtype=torch.uint8)
        self._memory.append((whole.data_ptr(), message["bytes"]))
        return whole

    def writable(self, number: int) -> tuple[list[Any], list[Any]]:
        """Return a slot's arguments and outputs, after opening the slot that was closed last."""
        if self._closed is not None:
            process_control.set_writable(*self._memory[self._closed], True)
            self._closed = None
        return self.bound[number]

    def close_inputs(self, number: int) -> None:
        """Close a slot to writes, what `run` writes left open, where inputs are to be closed during calls."""
        self._closed = number
        if self.inputs_closed:
            process_control.set_writable(*self._memory[number], False)
            for place in self._results[number]:
                process_control.set_writable(*place, True)

    def close(self, number: int) -> None:
        """Make every write to a slot of a CPU fatal (SIGSEGV), until `writable`."""
        self._closed = number
        process_control.set_writable(*self._memory[number], False)

    def unbind(self) -> None:
        """Forget all slots; the referee's device memory stays mapped until `release`."""
        self.bound = []
        self.arenas = []
        self._memory = []
        self._results = []
        self._closed = None

    def release(self) -> None:
        """Unmap the referee's device memory, which nothing on the device may use any more."""
        while self._opened:
            gpu.close_shared(self._opened.popitem()[1][0])


def _memory_of(arena: Any, item: dict[str, Any]) -> tuple[int, int]:
    """Return address and bytes of a tensor of a slot. Guards keep its pages from those of others."""
    import torch  # noqa: PLC0415

    return arena.data_ptr() + item["offset"], item["elements"] * getattr(torch, item["dtype"]).itemsize
