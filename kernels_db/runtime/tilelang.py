"""Kernels in TileLang: compiled for the shapes that a call has, and launched on torch's current stream.

    launch = tilelang.compile(add_relu)  # a @T.prim_func
    launch(x, y, out)

Source: the Python package `tilelang`. Tensors are passed as they are; their shapes and dtypes, and the numbers, are
constants of what is compiled, once for each combination. TileLang's own host code is not run: `tilelang_host` reads
from it what it launches, and the launches are made here, as those of CuTe DSL are.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from . import cutedsl
from .cutedsl_build import Argument, Compiled
from .cutedsl_host import HostLaunch, Parameter
from .map_encoding import encode
from .tilelang_build import build
from .tilelang_host import KernelLaunch, TensorMap

__all__ = ["Function", "build", "compile", "host_launch"]

_SOMEWHERE = 1 << 36  # a map's own address, until it is filled in


class Function(cutedsl.Function):
    """One `@T.prim_func`. A call launches what it launches, and raises as one of CuTe DSL's functions does.

    A tensor is contiguous, at an address that is a multiple of 16 bytes: else the call raises CompileError.
    """

    def __init__(self, function: Any) -> None:
        super().__init__(function)
        self.name = str(function.orig_func.__name__)

    def _compiled(self, facts: tuple[Argument, ...], arch: str, cache_dir: Path | None) -> Compiled:
        made = build(self.function, facts, arch, cache_dir=cache_dir)
        return Compiled(made.build, tuple(host_launch(one, _encoded) for one in made.launches))


def compile(function: Any) -> Function:  # noqa: A001  candidates say tilelang.compile
    """Make a `@T.prim_func` callable with tensors; compiled when it is first called with such ones.

    Raises:
        TypeError: it is none.
    """
    if not callable(getattr(function, "orig_func", None)) or not hasattr(function, "buffer_map"):
        raise TypeError(f"tilelang.compile: found {type(function).__name__}, expected a @T.prim_func")
    return Function(function)


def host_launch(one: KernelLaunch, encoded: Callable[[TensorMap], bytes]) -> HostLaunch:
    """Return a launch as it is made: bytes of each parameter, and where the addresses go. `encoded`: of a map."""
    parameters = tuple(
        Parameter(encoded(each), ((0, each.argument, 0),))
        if isinstance(each, TensorMap)
        else Parameter(bytes(8), ((0, each, 0),))
        for each in one.parameters
    )
    return HostLaunch(one.kernel, one.grid, one.block, one.shared, (), parameters)


def _encoded(one: TensorMap) -> bytes:
    return encode(_SOMEWHERE, one.element, one.shape, one.strides, one.box, one.steps, one.swizzle, one.promotion)
