"""`tl.dot` on bfloat16 under Triton's interpreter, which keeps the numbers as raw bits.

Without this module it would multiply the bits.

A kernel that adds or compares bfloat16 without a cast is still computed otherwise there than on a GPU
(`warpsmith.workers.judge.gates.job_run`): products are what kernels do with these numbers before they widen them.

The caller imports Triton, in the process that runs the candidate.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import triton.language as tl
from triton.runtime.interpreter import InterpreterBuilder, TensorHandle


@contextmanager
def bfloat16_products() -> Iterator[None]:
    """Let interpreted products inside the block multiply bfloat16 operands as numbers, exactly.

    A float32 holds each of them and each product of two.
    """
    create: Callable[..., Any] = InterpreterBuilder.create_dot

    def widened(self: Any, a: Any, b: Any, *rest: Any) -> Any:
        return create(self, _float32(a), _float32(b), *rest)

    InterpreterBuilder.create_dot = widened
    try:
        yield
    finally:
        InterpreterBuilder.create_dot = create


def _float32(handle: Any) -> Any:
    if handle.dtype.scalar != tl.bfloat16:
        return handle
    return TensorHandle((handle.data.astype(np.uint32) << 16).view(np.float32), tl.float32)
