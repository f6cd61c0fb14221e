"""The current context of a thread: into it CUDA's driver loads kernels, and without one cuda-core makes no tensor map.

PyTorch makes a device's primary context current by calls of CUDA's runtime. A new thread may not have made one before
its first launch: memory for its tensors comes from PyTorch's pool, and the device that it wants is current already.
"""

from __future__ import annotations

import ctypes
import threading
from functools import lru_cache
from typing import Any

from .map_encoding import DRIVER

_thread = threading.local()


def bind(device: int) -> None:
    """Make a device's primary context current on this thread, where the thread has none.

    A context that it has stays: PyTorch changes it with the current device. Asked of the driver once for each thread.

    Args:
        device: its number, as PyTorch counts.

    Raises:
        OSError: there is no driver. RuntimeError: the driver refuses.
    """
    if getattr(_thread, "bound", False):
        return
    context = ctypes.c_void_p()
    _ask("cuCtxGetCurrent", ctypes.byref(context))
    if context.value is None:
        _ask("cuCtxSetCurrent", ctypes.c_void_p(_primary(device)))
    _thread.bound = True


@lru_cache
def _primary(device: int) -> int:
    """Return a device's primary context, which this process keeps."""
    number, context = ctypes.c_int(), ctypes.c_void_p()
    _ask("cuDeviceGet", ctypes.byref(number), ctypes.c_int(device))
    _ask("cuDevicePrimaryCtxRetain", ctypes.byref(context), number)
    return context.value or 0


def _ask(function: str, *arguments: Any) -> None:
    found = getattr(_driver(), function)(*arguments)
    if found:
        raise RuntimeError(f"{function}: found status {found}, expected 0")


def _driver() -> Any:
    return ctypes.CDLL(DRIVER)
