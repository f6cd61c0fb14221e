"""Plans by hand: their steps and pieces, and the table that they are put into."""

from __future__ import annotations

import struct
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="plans are of torch's tensors")

ALLOCATE, ZERO, CALL, LAUNCH = range(4)
NUMBER, POINTER, MAP = range(3)
BLOCK: ContextVar[object] = ContextVar("block", default=None)
STREAM = 0xABCD0


def table(
    extension: Any,
    alignments: tuple[tuple[int, int], ...] = (),
    mutated: tuple[int, ...] = (),
    kernels: int = 1,
    *,
    graphs_from: int = 0,
    stream: Callable[[int], int] = lambda device: STREAM + device,
) -> Any:
    """A table whose kernels may serve every call."""
    quiet = ((torch._C._len_torch_dispatch_stack, 0),)
    made = extension.table(
        torch.Tensor.__dlpack_c_exchange_api__,
        torch.Tensor,
        torch.nn.Parameter,
        BLOCK,
        torch.is_grad_enabled,
        torch.Tensor.is_neg,
        torch.autograd.graph.increment_version,
        stream,
        quiet,
        alignments,
        mutated,
        kernels,
        graphs_from,
    )
    for kernel in range(kernels):
        made.grant(kernel, 1 << 20)
    return made


def number(value: Any, kind: str) -> tuple[Any, ...]:
    """A number for a parameter of this kind, by `struct`'s letters."""
    bits = int.from_bytes(
        struct.pack(f"<{kind}", value).ljust(8, b"\xff" if value < 0 and kind in "bhi" else b"\0"), "little"
    )
    return (NUMBER, kind in "fd", 0, 0, bits, b"")


def pointer(slot: int, offset: int = 0) -> tuple[Any, ...]:
    """The address of a slot's tensor, and so many bytes more."""
    return (POINTER, False, slot, offset, 0, b"")


def step(act: int, slot: int = 0, function: int = 0, pieces: tuple[Any, ...] = (), **launch: Any) -> tuple[Any, ...]:
    """What a plan does at one point; `launch`: grid, block, shared, attributes, and whether `function` is a kernel."""
    extents = launch.get("grid", (0, 0, 0)), launch.get("block", (0, 0, 0))
    options = launch.get("shared", 0), launch.get("attributes", ()), launch.get("kernel", False)
    return (act, slot, function, *extents, *options, pieces)


def new(*shape: int, dtype: Any = None) -> tuple[Any, Any]:
    """A slot: what makes its tensor."""
    return torch.empty_like, torch.empty(shape, dtype=dtype or torch.float32)
