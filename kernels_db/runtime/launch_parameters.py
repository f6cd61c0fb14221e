"""A recorded launch held against what CUDA's driver says that the kernel takes, before anything launches it again.

A launch with other parameters than the kernel's own can end a process's work on its GPU; a driver before CUDA 12.4 says
nothing of parameters, and then nothing is compared.
"""

from __future__ import annotations

import ctypes

from . import map_encoding
from .recording import Launch

_MOST = 1024
_QUESTIONS = {"kernel": "cuKernelGetParamInfo", "function": "cuFuncGetParamInfo"}


def mismatch(launch: Launch) -> str | None:
    """Return how the sizes of a launch's parameters are not those of its kernel; None where they are."""
    try:
        ask = getattr(ctypes.CDLL(map_encoding.DRIVER), _QUESTIONS[launch.handle])
    except (OSError, AttributeError):
        return None
    found = []
    offset, size = ctypes.c_size_t(), ctypes.c_size_t()
    for position in range(_MOST):
        where = ctypes.c_size_t(position)
        if ask(ctypes.c_void_p(launch.function), where, ctypes.byref(offset), ctypes.byref(size)):
            break
        found.append(size.value)
    least = len(launch.sizes) - launch.trailing
    if len(found) >= least and tuple(found) == launch.sizes[: len(found)]:
        return None
    expected = ", ".join(map(str, launch.sizes[:least]))
    return f"{launch.name} takes parameters of {', '.join(map(str, found)) or 'no'} bytes, recorded with {expected}"
