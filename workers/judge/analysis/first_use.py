"""Find the tensors that a call overwrites before it reads them. Needs only PyTorch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

OVERWRITING = ("copy_", "fill_", "zero_", "normal_", "uniform_")
"""Operations that replace every element of their first argument, whatever was there."""


class FirstUse(TorchDispatchMode):  # type: ignore[no-untyped-call]  # torch's own base
    """While it is entered, notes of tensors by name whether the first operation on their memory overwrites them whole.

    `overwritten`: the names of those. The memory of one that shares it with another is never among them. Views read
    nothing. What reads memory without an operation (`tolist`) is not seen.
    """

    def __init__(self, tensors: Mapping[str, torch.Tensor]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        names: dict[int | None, list[str]] = {}
        for name, tensor in tensors.items():
            names.setdefault(_memory(tensor), []).append(name)
        names.pop(None, None)
        self._unused = {memory: found[0] for memory, found in names.items() if len(found) == 1}
        self.overwritten: set[str] = set()

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # True would import torch._dynamo, which takes seconds

    @property
    def untouched(self) -> set[str]:
        """The names of tensors on whose memory there was no operation."""
        return set(self._unused.values())

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func.is_view and func._schema.name != "aten::detach":  # behind which NumPy reads
            return func(*args, **(kwargs or {}))
        read = {_memory(leaf) for leaf in tree_leaves((args[1:], kwargs or {})) if isinstance(leaf, torch.Tensor)}
        for memory in read:
            self._unused.pop(memory, None)
        if args and isinstance(args[0], torch.Tensor):
            name = self._unused.pop(_memory(args[0]), None)
            if name is not None and func._schema.name.removeprefix("aten::") in OVERWRITING and _is_whole(args[0]):
                self.overwritten.add(name)
        else:
            for leaf in tree_leaves(args[:1]):
                if isinstance(leaf, torch.Tensor):
                    self._unused.pop(_memory(leaf), None)
        return func(*args, **(kwargs or {}))


def _memory(tensor: torch.Tensor) -> int | None:
    """Return what tells a tensor's memory from others'; None where it has none of its own (a sparse one)."""
    if tensor.layout is not torch.strided:
        return None
    return int(tensor.untyped_storage()._cdata)


def _is_whole(tensor: torch.Tensor) -> bool:
    """Check whether a tensor, which may be a view, holds each element of its memory once."""
    expected = 1
    for stride, size in sorted(zip(tensor.stride(), tensor.shape, strict=True)):
        if size != 1 and stride != expected:
            return False
        expected *= size
    return expected * tensor.element_size() == tensor.untyped_storage().nbytes()
