"""Inline assembly that computes nothing, under Triton's interpreter: waiting for the kernel before, hints to caches.

The interpreter runs one program after another and has no caches, so there is nothing to do. Other assembly it refuses,
and a kernel that uses this would reach the GPU unchecked.

The caller imports Triton, in the process that runs the candidate.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
from triton.runtime.interpreter import InterpreterBuilder, TensorHandle

_IDLE = re.compile(r"griddepcontrol\.(wait|launch_dependents)|prefetch(u)?\.[\w.:]+ \[\$\d+\]|mov\.b32 \$0, 0|//.*|")
"""One instruction; the last two of them give the dummy result that Triton asks for, and end a line."""


class _Results(NamedTuple):
    handles: list[Any]

    def get_result(self, at: int) -> Any:
        """Return one result, as an operation of MLIR does."""
        return self.handles[at]


def is_idle(assembly: str) -> bool:
    """Check whether every instruction waits for another kernel, asks a cache for a line, or clears the result."""
    return all(_IDLE.fullmatch(one.strip()) for one in re.split(r"[;\n]", assembly))


@contextmanager
def idle_assembly() -> Iterator[None]:
    """Let interpreted assembly that computes nothing give zeros inside the block."""
    create: Callable[..., Any] = InterpreterBuilder.create_inline_asm

    def zeros(self: Any, asm: str, constraints: str, values: Sequence[Any], types: Sequence[Any], *rest: Any) -> Any:
        if not is_idle(asm):
            return create(self, asm, constraints, values, types, *rest)
        shape = values[0].data.shape if values else (1,)
        return _Results([TensorHandle(np.zeros(shape, dtype=np.int32), kind.scalar) for kind in types])

    InterpreterBuilder.create_inline_asm = zeros
    try:
        yield
    finally:
        InterpreterBuilder.create_inline_asm = create
