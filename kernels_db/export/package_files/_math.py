"""The arithmetic of float32 products that the op's spec asks for, set while PyTorch is compared with.

`ieee` keeps TF32 out of PyTorch's own matrix products and convolutions, `tf32` lets it in, as in the judge. PyTorch has
one such setting a process and for GPUs alone, so it is put back afterwards, and a process in which other threads could
compute meanwhile is left as it is. Ordinary calls that PyTorch serves follow the process's own setting.
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
    """Why the setting cannot be changed for a while, where it would have to be."""
    if not _differs():
        return None
    if threading.active_count() > 1:
        return (
            f"the kernel was verified under math: {_spec.MATH}, this process computes float32 products otherwise, and "
            "its other threads would notice a change"
        )
    return None


@contextmanager
def setting() -> Iterator[None]:
    """The spec's arithmetic inside the block. Raises RuntimeError where the process mixed PyTorch's two ways to set it,
    and so cannot tell what to put back.
    """
    if not _differs():
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
