"""What the host function of a TileLang kernel launches, read from its lowered code.

TileLang lowers a `@T.prim_func` to kernels and to a host function that checks its arguments, makes tensor maps and
launches. That function is never compiled or run: its statements are read. All shapes and numbers are constants by then,
so a launch is a call of constants and of tensors, and whatever else the function does is refused.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .errors import CompileError

_PACKED = "tirx.tvm_call_packed"
_SET_DEVICE, _MAKE_MAP = "__tvm_set_device", "__tvm_tensormap_create_tiled"
_SHARED = "tirx.use_dyn_shared_memory"
_AXES = tuple(f"{kind}.{axis}" for kind in ("blockIdx", "threadIdx") for axis in "xyz")
_PLAIN = frozenset({"AssertStmt", "AttrStmt", "Bind", "DeclBuffer", "Evaluate", "SeqStmt"})
"""Statements that every host function has; a loop or branch would be something that a plan cannot hold."""


@dataclass(frozen=True)
class TensorMap:
    """A tensor map of an argument, as CUDA's `cuTensorMapEncodeTiled` takes it: the innermost axis first.

    strides: bytes, of every axis but the innermost. swizzle and promotion: numbers of the driver's enums.
    """

    argument: int
    element: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    box: tuple[int, ...]
    steps: tuple[int, ...]
    swizzle: int
    promotion: int


@dataclass(frozen=True)
class KernelLaunch:
    """One launch. parameters: the number of a tensor's argument, or a tensor map."""

    kernel: str
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    shared: int
    parameters: tuple[int | TensorMap, ...]


def launches(host: Any, kernels: Mapping[str, Sequence[str]], tensors: Mapping[str, int]) -> list[KernelLaunch]:
    """Return what the lowered host function launches, in order.

    Args:
        host: TIR of the host function, `tvm.tirx.PrimFunc`.
        kernels: by its name, what a kernel's launch names behind its arguments (`tirx.kernel_launch_params`).
        tensors: by the name of a tensor's pointer, the number of its argument.

    Raises:
        CompileError: the function does what is not known here.
    """
    maps: dict[str, TensorMap] = {}
    found = []
    for name, arguments in _calls(host.body):
        if name == _MAKE_MAP:
            made = _tensor_map(arguments, tensors)
            maps[str(arguments[0].name)] = made
        elif name in kernels:
            found.append(_launch(name, arguments, kernels[name], maps, tensors))
        elif name != _SET_DEVICE:
            raise CompileError(f"the host function calls {name!r}, expected launches of kernels alone")
    return found


def _calls(body: Any) -> list[tuple[str, list[Any]]]:
    """The calls by name in a host function's statements, in order."""
    tirx = importlib.import_module("tvm.tirx")
    visit = importlib.import_module("tvm.tirx.stmt_functor").post_order_visit
    found: list[tuple[str, list[Any]]] = []
    strange: list[str] = []

    def seen(node: Any) -> None:
        if isinstance(node, tirx.Stmt) and type(node).__name__ not in _PLAIN:
            strange.append(type(node).__name__)
        if isinstance(node, tirx.Call) and getattr(node.op, "name", "") == _PACKED:
            found.append((str(node.args[0].value), list(node.args[1:])))

    visit(body, seen)
    if strange:
        raise CompileError(f"the host function has {strange[0]}, expected launches one after another")
    return found


def _launch(
    name: str,
    arguments: Sequence[Any],
    launch_parameters: Sequence[str],
    maps: Mapping[str, TensorMap],
    tensors: Mapping[str, int],
) -> KernelLaunch:
    if unknown := [one for one in launch_parameters if one not in (*_AXES, _SHARED)]:
        raise CompileError(f"kernel {name!r} is launched with {unknown[0]}, expected grid, threads and shared memory")
    count = len(arguments) - len(launch_parameters)
    sizes = {one: _number(each) for one, each in zip(launch_parameters, arguments[count:], strict=True)}
    parameters: list[int | TensorMap] = []
    for each in arguments[:count]:
        given = str(getattr(each, "name", each))
        if given not in maps and given not in tensors:
            raise CompileError(
                f"kernel {name!r} takes {given!r}, which is no constant: expected every T.dynamic size to be that of a "
                "tensor"
            )
        parameters.append(maps[given] if given in maps else tensors[given])
    x, y, z, i, j, k = (sizes.get(one, 1) for one in _AXES)
    return KernelLaunch(name, (x, y, z), (i, j, k), sizes.get(_SHARED, 0), tuple(parameters))


def _tensor_map(arguments: Sequence[Any], tensors: Mapping[str, int]) -> TensorMap:
    """A tensor map of (place, element, rank, tensor, shape, strides, box, steps, interleave, swizzle, l2, fill)."""
    rank, tensor = _number(arguments[2]), str(getattr(arguments[3], "name", ""))
    rest = [_number(one) for one in arguments[4:]]
    if len(rest) != 4 * rank + 4 or tensor not in tensors:
        raise CompileError(f"a tensor map of {tensor or 'no tensor'} is not made as this version of TileLang's is")
    shape, strides, box, steps = (tuple(rest[at * rank : (at + 1) * rank]) for at in range(4))
    interleave, swizzle, promotion, fill = rest[4 * rank :]
    if interleave or fill:
        raise CompileError("a tensor map is interleaved, or gives other values than zero outside of its tensor")
    return TensorMap(tensors[tensor], _number(arguments[1]), shape, strides[1:], box, steps, swizzle, promotion)


def _number(one: Any) -> int:
    """The value of a constant."""
    value = getattr(one, "value", None)
    if not isinstance(value, int):
        raise CompileError(f"the host function computes {one}, expected a constant: pass shapes as those of tensors")
    return value
