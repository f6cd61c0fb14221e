"""Run code written for a GPU on a machine without one: its tensors go to our device.

For generators of inputs, constructors, and references that name a GPU; never for a candidate. On a CPU, products of
block-scaled matrices are `block_scaled`'s.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from warpsmith.kernels_db.job import block_scaled


class _Generator(torch.Generator):
    """A generator on the CPU, whatever device is asked for."""

    def __new__(cls, device: Any = "cpu") -> _Generator:
        return super().__new__(cls, device="cpu")  # type: ignore[call-arg]  # the stubs have no __new__


class _Redirected(TorchFunctionMode):
    def __init__(self, device: torch.device, *, gpu_alone: bool = False) -> None:
        super().__init__()
        self.device = device
        self.gpu_alone = gpu_alone  # whether other devices stay as they are said

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        name = getattr(func, "__name__", "")
        if name == "cuda":
            return args[0]
        if name == "to":
            args = (args[0], *(self.device if _names_gpu(value) else value for value in args[1:]))
        said = kwargs.get("device")
        if said is not None and (not self.gpu_alone or _names_gpu(said)):
            kwargs["device"] = self.device
        if self.device.type == "meta":
            kwargs.pop("generator", None)
        elif func is torch._scaled_mm and block_scaled.is_block_scaled(_argument(2, "scale_a", args, kwargs)):
            return block_scaled.scaled_mm(*args, **kwargs)
        return func(*args, **kwargs)


def _argument(position: int, name: str, args: Any, kwargs: Any) -> Any:
    return args[position] if len(args) > position else kwargs[name]


def _names_gpu(value: Any) -> bool:
    if isinstance(value, str):
        return value.partition(":")[0] == "cuda"
    return isinstance(value, torch.device) and value.type == "cuda"


@contextmanager
def on(device: torch.device) -> Iterator[None]:
    """Put everything made inside the block on `device`: `cpu`, or `meta`, which has no values.

    Changes `torch.Generator` meanwhile: for a process of one thread.
    """
    kept = torch.Generator
    torch.Generator = _Generator  # type: ignore[misc]
    try:
        with device, _Redirected(device):
            yield
    finally:
        torch.Generator = kept  # type: ignore[misc]


@contextmanager
def gpu_as_cpu() -> Iterator[None]:
    """Put what code inside the block makes on a GPU on the CPU; all else is made where it says.

    Changes `torch.Generator` meanwhile: for a process of one thread.
    """
    kept = torch.Generator
    torch.Generator = _Generator  # type: ignore[misc]
    try:
        with _Redirected(torch.device("cpu"), gpu_alone=True):
            yield
    finally:
        torch.Generator = kept  # type: ignore[misc]
