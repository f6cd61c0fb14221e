"""The CUDA driver: memory that two processes share, and limits of a context.

This is all of the driver that referee and runners need. torch works on top of it in both. `cuda.bindings` is imported
when first needed: a machine without a GPU needs none.
"""

from __future__ import annotations

import contextlib
import importlib
from typing import Any

import torch

_GRANULE = 2 << 20
"""The size of the driver's memory blocks: 2 MiB.

Opening one allocation maps its whole block: an arena that fills its blocks shares none with anything else.
"""


class Shared:
    """Device memory of the referee's that other processes may open by `handle`.

    `tensor` views it as bytes. It may have several users in this process, and goes back to the device with the last.
    """

    def __init__(self, pointer: int, size: int, handle: bytes) -> None:
        self.pointer = pointer
        self.handle = handle
        self.tensor = view(pointer, size)
        self._users = 1

    def retain(self) -> None:
        """There is one more user."""
        self._users += 1

    def release(self) -> None:
        """Count one user less.

        The process that this user had opened it in must have closed it, or have ended.
        """
        self._users -= 1
        if self._users == 0:
            torch.cuda.synchronize()
            _check(_driver().cuMemFree(self.pointer), "cuMemFree")


class _Bytes:
    """The CUDA array interface, version 3: how torch sees device memory without owning it."""

    def __init__(self, pointer: int, size: int) -> None:
        self.__cuda_array_interface__ = {"shape": (size,), "typestr": "|u1", "data": (pointer, False), "version": 3}


def view(pointer: int, size: int) -> torch.Tensor:
    """Return a uint8 tensor of `size` elements over device memory that it does not own."""
    return torch.as_tensor(_Bytes(pointer, size), device="cuda")


def allocate(size: int) -> Shared:
    """Allocate `size` bytes of device memory that may be shared.

    `initialise` must have run in this thread. Raises OSError where the device refuses.
    """
    rounded = -(-size // _GRANULE) * _GRANULE
    pointer = int(_check(_driver().cuMemAlloc(rounded), f"cuMemAlloc of {rounded} bytes"))
    try:
        handle = _check(_driver().cuIpcGetMemHandle(pointer), "cuIpcGetMemHandle")
    except OSError:
        _driver().cuMemFree(pointer)
        raise
    return Shared(pointer, size, bytes(handle.reserved))


def open_shared(handle: bytes, size: int) -> tuple[int, torch.Tensor]:
    """Open another process's memory; return its address here, to close it by, and a view of it.

    `initialise` must have run in this thread. Raises OSError.
    """
    name = _driver().CUipcMemHandle()
    name.reserved = handle
    flag = _driver().CUipcMem_flags.CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS
    pointer = int(_check(_driver().cuIpcOpenMemHandle(name, flag), "cuIpcOpenMemHandle"))
    return pointer, view(pointer, size)


def close_shared(pointer: int) -> None:
    """Undo `open_shared`. Nothing may use the view any more."""
    _check(_driver().cuIpcCloseMemHandle(pointer), "cuIpcCloseMemHandle")


def initialise() -> None:
    """Make this process's context the current one, without any L2 cache set aside.

    Lines that a kernel marks as persisting would outlive the flush between timed calls.
    """
    torch.cuda.init()  # type: ignore[no-untyped-call]
    torch.zeros(1, device="cuda")
    with contextlib.suppress(OSError):  # chips before compute capability 8.0 have no such limit
        limit = _driver().CUlimit.CU_LIMIT_PERSISTING_L2_CACHE_SIZE
        _check(_driver().cuCtxSetLimit(limit, 0), "cuCtxSetLimit")
    torch.cuda.synchronize()


def attribute(name: str) -> int:
    """Return an attribute of the first device by the driver's name, without its prefix."""
    which = getattr(_driver().CUdevice_attribute, f"CU_DEVICE_ATTRIBUTE_{name}")
    return int(_check(_driver().cuDeviceGetAttribute(which, 0), "cuDeviceGetAttribute"))


def driver_version() -> str:
    """Return the newest CUDA version that the installed driver serves, such as "13.0"."""
    number = int(_check(_driver().cuDriverGetVersion(), "cuDriverGetVersion"))
    return f"{number // 1000}.{number % 1000 // 10}"


def _driver() -> Any:
    return importlib.import_module("cuda.bindings.driver")


def _check(answer: tuple[Any, ...], what: str) -> Any:
    """Return the value of a driver call. Raises OSError with the driver's name of the error."""
    status, *values = answer
    if int(status) != 0:
        raise OSError(f"{what}: {getattr(status, 'name', status)}")
    return values[0] if values else None
