"""The arithmetic of float32 products that the op's spec asks for, set while PyTorch is compared with.

`ieee` keeps TF32 out of PyTorch's own matrix products and convolutions, `tf32` lets it in, as in the judge. PyTorch has
one such setting a process and for GPUs alone, so it is put back afterwards, and shadow mode leaves a process alone in
which other threads could compute meanwhile. Ordinary calls that PyTorch serves follow the process's own setting.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from . import _spec

_WANTED = _spec.MATH == "tf32"


def _differs() -> bool:
    """Whether PyTorch computes float32 products on a GPU otherwise than the spec asks for."""
    if not any(kernel["device"] == "cuda" for kernel in _spec.KERNELS):
        return False
    products, convolutions = torch.backends.cuda.matmul, torch.backends.cudnn
    if hasattr(
        products, "fp32_precision"
    ):  # since PyTorch 2.9; the other one then raises where a process used this one
        now = (products.fp32_precision == "tf32", convolutions.conv.fp32_precision == "tf32")
    else:
        now = (products.allow_tf32, convolutions.allow_tf32)
    return now != (_WANTED, _WANTED)


def refusal() -> str | None:
    """Why a call of this process cannot be compared. That TF32 is allowed where it need not be only widens the limit;
    where the spec has it and the process has not, the kernel would be called wrong for it.
    """
    if _WANTED and _shared() and _differs():
        return (
            "the kernel was verified under math: tf32, this process keeps PyTorch's float32 products out of TF32, and "
            "its other threads would notice a change"
        )
    return None


def _shared() -> bool:
    """Whether other threads could compute meanwhile."""
    return threading.active_count() > 1


@contextmanager
def setting(*, cautious: bool = False) -> Iterator[None]:
    """The spec's arithmetic inside the block; `cautious`: not where other threads run. Raises RuntimeError where the
    process mixed PyTorch's two ways to set it, and so cannot tell what to put back.
    """
    if (cautious and _shared()) or not _differs():
        yield
        return
    products, convolutions = torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32
    torch.set_float32_matmul_precision("high" if _WANTED else "highest")
    torch.backends.cudnn.allow_tf32 = _WANTED
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(products)
        torch.backends.cudnn.allow_tf32 = convolutions
