"""What the host function of a CuTe DSL kernel launches, found by interpreting its lowered code.

The DSL compiles a `@cute.jit` function to native code that launches its kernels. That code is never run here: its LLVM
operations are interpreted, those of an allow-list alone, and the only function that they may call is the launch. What
comes out is what a launch needs: kernel, grid, block, shared memory, attributes, and the bytes of each parameter.

Tensors have made-up addresses meanwhile. The code is interpreted twice, with others the second time: a word of a
parameter that moved with a tensor's address is that tensor's address plus a constant, in a tensor map too, and nothing
else may differ.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .cutedsl_interpreter import APART, HostLaunch, Interpreter, Parameter
from .errors import CompileError

__all__ = ["HostLaunch", "Parameter", "launches"]

_MOVED = (1 << 33) - 16
"""Bytes between a tensor's two places: they differ in every bit but those of the alignment that is promised."""


def launches(module: Any, arguments: Sequence[tuple[int, int] | float]) -> list[HostLaunch]:
    """Return what the module's host function launches, in order.

    Args:
        module: the DSL's compiled module, in MLIR's LLVM dialect.
        arguments: of the host function: a number, or (number of the tensor's argument, bytes that its address lies
            behind a multiple of all that is asked of addresses).

    Raises:
        CompileError: the host function does what is not known here, or what depends on an address.
    """
    function = _host_function(module)
    runs = []
    for move in (0, _MOVED):
        places = [
            ((one[0] + 1) * APART + move + one[1], one[0]) if isinstance(one, tuple) else one for one in arguments
        ]
        runs.append((Interpreter(function, places).run(), places))
    (first, before), (second, after) = runs
    if len(first) != len(second):
        raise _depends()
    starts = [
        (one[1], one[0], other[0])
        for one, other in zip(before, after, strict=True)
        if isinstance(one, tuple) and isinstance(other, tuple)
    ]
    return [_joined(one, other, starts) for one, other in zip(first, second, strict=True)]


def _depends() -> CompileError:
    return CompileError(
        "the host function depends on a tensor's address: expected kernel arguments that are tensors, numbers, layouts "
        "and TMA atoms"
    )


def _joined(one: HostLaunch, other: HostLaunch, starts: list[tuple[int, int, int]]) -> HostLaunch:
    """The launch with its addresses found, from two whose tensors lie elsewhere."""
    if _facts(one) != _facts(other):
        raise _depends()
    parameters = []
    for first, second in zip(one.parameters, other.parameters, strict=True):
        words, template = [], bytearray(first.template)
        for at in range(0, len(template), 8):
            before, after = first.template[at : at + 8], second.template[at : at + 8]
            if before == after:
                continue
            values = int.from_bytes(before, "little"), int.from_bytes(after, "little")
            found = [
                (argument, values[0] - start)
                for argument, start, moved in starts
                if values[0] - start == values[1] - moved and 0 <= values[0] - start < _MOVED
            ]
            if len(found) != 1 or len(before) < 8:
                raise _depends()
            words.append((at, *found[0]))
            template[at : at + 8] = bytes(8)
        parameters.append(Parameter(bytes(template), tuple(words)))
    return HostLaunch(one.kernel, one.grid, one.block, one.shared, one.attributes, tuple(parameters))


def _facts(one: HostLaunch) -> tuple[Any, ...]:
    sizes = tuple(len(parameter.template) for parameter in one.parameters)
    return one.kernel, one.grid, one.block, one.shared, one.attributes, sizes


def _host_function(module: Any) -> Any:
    found = [
        each.operation
        for each in module.body.operations
        if each.operation.name == "llvm.func"
        and "llvm.emit_c_interface" in each.operation.attributes
        and not str(each.operation.attributes["sym_name"]).startswith('"_mlir_ciface_')
    ]
    if len(found) != 1:
        raise CompileError(f"found {len(found)} host functions in what CuTe DSL compiled, expected one")
    return found[0]
