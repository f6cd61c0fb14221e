"""The reference in float64: the arithmetic from which tolerances are derived.

Casting the inputs is not enough: references cast inside (`x.float()`, `softmax(..., dtype=torch.float32)`). Under this
mode every request for a narrower floating dtype becomes a request for float64, so the result carries float64's error
whatever the reference says. PyTorch alone is needed: the judge runs references under it, and an export carries a copy.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map

NARROW = {torch.float32, torch.float16, torch.bfloat16}
_TF32_HALF = 1 << 12


def rounded_to_tf32(value: Any) -> Any:
    """Round float32 values to the nearest with TF32's 10 bits of fraction; return whatever else it is as it is.

    What this does to the float64 result is the error that an op under `math: tf32` allows, whether PyTorch's libraries
    choose TF32 at a shape or not.
    """
    if not isinstance(value, torch.Tensor) or value.dtype != torch.float32:
        return value
    nearest = ((value.view(torch.int32) + _TF32_HALF) & ~(2 * _TF32_HALF - 1)).view(torch.float32)
    return torch.where(torch.isfinite(value), nearest, value)


def _widened(value: Any) -> Any:
    if isinstance(value, torch.dtype) and value in NARROW:
        return torch.float64
    if isinstance(value, torch.Tensor) and value.dtype in NARROW:
        return value.to(
            torch.float64
        )  # a constant that was made outside of torch's dispatcher, such as torch.tensor(0.5)
    return value


class _WideFloats(TorchDispatchMode):  # type: ignore[no-untyped-call]  # torch's own base
    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        # Nothing is compiled under this mode; True would import torch._dynamo for that case, which takes seconds.
        return False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.ops.aten.view.dtype and not args[0].is_floating_point():
            return func(*args, **(kwargs or {}))  # bytes read as numbers: others of 8 bytes would be read from them
        writes = func._schema.is_mutable
        wide = args if writes else tree_map(_widened, args)
        named = tree_map(_widened, kwargs or {})
        found = func(*wide, **named)
        if _is_made_narrow(func, found, named):  # by default: `torch.ones(8)`
            return func(*wide, **{**named, "dtype": torch.float64})
        return found


def _is_made_narrow(func: Any, found: Any, named: dict[str, Any]) -> bool:
    """Whether a function without tensors made a narrow one because nobody named a dtype."""
    return (
        isinstance(found, torch.Tensor)
        and found.dtype in NARROW
        and named.get("dtype") is None
        and any(argument.name == "dtype" for argument in func._schema.arguments)
        and not any(isinstance(argument.type, torch.TensorType) for argument in func._schema.arguments)
    )


def in_float64(run: Callable[..., Any]) -> Callable[..., Any]:
    """`run` with every narrower floating dtype inside replaced by float64."""

    def widened_run(*arguments: Any) -> Any:
        with _WideFloats():  # type: ignore[no-untyped-call]  # torch's own base
            return run(*arguments)

    return widened_run
