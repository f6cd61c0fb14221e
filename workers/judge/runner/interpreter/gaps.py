"""Have what Triton's interpreter and a missing device cannot do say so, in the process that runs the candidate.

Interpreted, a function of libdevice is an empty stub that gives None, and what is done with None fails in words that
blame the kernel. That is not the candidate's fault, so they raise what the interpreter raises for the things it names
itself, such as inline assembly. Of a device's properties candidates may read its number of multiprocessors, and grids
of that size are common: they get a small one.
"""

from __future__ import annotations

from collections.abc import Callable
from types import FunctionType, ModuleType, SimpleNamespace
from typing import Any, NoReturn

import torch
from triton.language.extra import libdevice
from triton.language.extra.cuda import libdevice as cuda_libdevice

NOT_SUPPORTED = "not supported in interpreter mode"
"""Words of Triton's interpreter."""
MULTIPROCESSORS = 4
"""Of the device that is missing: so few that loops over what the grid leaves run more than once on small workloads."""

CAPABILITY = 90
"""Compute capability of the device that is missing: the way through a kernel that most take."""


def name_gaps() -> None:
    """Replace what is missing by functions that raise, before a candidate's file takes them from their modules."""
    for module in (libdevice, cuda_libdevice):
        for name in _functions(module):
            setattr(module, name, _missing(f"libdevice.{name}"))
    setattr(torch.cuda, "get_device_properties", _small_device)  # noqa: B010 - on purpose


def _small_device(*_: Any, **__: Any) -> SimpleNamespace:
    return SimpleNamespace(multi_processor_count=MULTIPROCESSORS, major=CAPABILITY // 10, minor=CAPABILITY % 10)


def _functions(module: ModuleType) -> list[str]:
    return [
        name
        for name, value in vars(module).items()
        if isinstance(value, FunctionType) and value.__module__ == module.__name__ and not name.startswith("_")
    ]


def _missing(name: str) -> Callable[..., NoReturn]:
    def missing(*_: Any, **__: Any) -> NoReturn:
        raise NotImplementedError(f"{name} {NOT_SUPPORTED}")

    return missing
