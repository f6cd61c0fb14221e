"""From Python arguments to what a kernel's parameters take. A converter is made once per parameter and is all that a
call costs.

A tensor is anything with `data_ptr()`, `dtype` and `is_cuda`, as torch's have; torch itself is not imported.
"""

from __future__ import annotations

import ctypes
import operator
from collections.abc import Callable
from typing import Any, Literal, SupportsFloat, SupportsIndex

from .errors import CompileError
from .signatures import Parameter

Argument = Any
"""A tensor, a number, or None for a pointer to nothing."""
C_TYPES: dict[str, type] = {
    "bool": ctypes.c_bool,
    "int8": ctypes.c_int8,
    "int16": ctypes.c_int16,
    "int32": ctypes.c_int32,
    "int64": ctypes.c_int64,
    "uint8": ctypes.c_uint8,
    "uint16": ctypes.c_uint16,
    "uint32": ctypes.c_uint32,
    "uint64": ctypes.c_uint64,
    "float32": ctypes.c_float,
    "float64": ctypes.c_double,
}
"""How a number of each scalar type is passed."""


def converter(function: str, parameter: Parameter, device: Literal["cpu", "cuda"]) -> Callable[[Argument], Any]:
    """The function that turns an argument for `parameter` into an address or a number.

    It raises TypeError, or OverflowError for an integer out of range; both name function and parameter.
    """
    where = f"parameter {parameter.name!r} ({parameter.type}) of {function!r}"
    if parameter.kind == "pointer":
        return _pointer(where, parameter.dtypes, device)
    if parameter.kind == "integer":
        return _integer(where, *integer_range(parameter))
    if parameter.kind == "floating":
        return _floating(where)
    if parameter.kind == "boolean":
        return _boolean(where)
    raise CompileError(f"{where}: a tensor map is taken by CUDA kernels only")


def _pointer(where: str, dtypes: frozenset[str] | None, device: str) -> Callable[[Argument], int]:
    accepted: set[Any] = set()  # dtype objects seen to fit: they are singletons, so looking one up is cheap
    on_gpu = device == "cuda"

    def convert(tensor: Argument) -> int:
        if tensor is None:
            return 0
        try:
            dtype, address, is_cuda = tensor.dtype, tensor.data_ptr, tensor.is_cuda
        except AttributeError:
            raise TypeError(f"{where}: found {type(tensor).__name__}, expected a tensor") from None
        if dtype not in accepted:
            name = str(dtype).removeprefix("torch.")
            if dtypes is not None and name not in dtypes:
                raise TypeError(f"{where}: found a tensor of {name}, expected {' or '.join(sorted(dtypes))}")
            accepted.add(dtype)
        if is_cuda is not on_gpu:
            raise TypeError(f"{where}: found a tensor on {tensor.device}, expected one on {device}")
        return int(address())

    return convert


def integer_range(parameter: Parameter) -> tuple[int, int]:
    """The least and the greatest value that an integer parameter holds."""
    bits = parameter.bits
    return (-(1 << bits - 1), (1 << bits - 1) - 1) if parameter.signed else (0, (1 << bits) - 1)


def _integer(where: str, low: int, high: int) -> Callable[[Argument], int]:
    def convert(value: SupportsIndex) -> int:
        if type(value) is not int:
            value = _index(where, value)
        if not low <= value <= high:
            raise OverflowError(f"{where}: found {value}, expected {low} to {high}")
        return value

    return convert


def _index(where: str, value: SupportsIndex) -> int:
    if not hasattr(
        value, "data_ptr"
    ):  # a tensor of one element converts too, but it is a mistake in the order of arguments
        try:
            return operator.index(value)
        except TypeError:
            pass  # said below, with the parameter's name
    raise TypeError(f"{where}: found {_named(value)}, expected an int")


def _floating(where: str) -> Callable[[Argument], float]:
    def convert(value: SupportsFloat) -> float:
        if type(value) is float:
            return value
        if hasattr(value, "data_ptr") or not hasattr(value, "__float__"):
            raise TypeError(f"{where}: found {_named(value)}, expected a number")
        return float(value)

    return convert


def _boolean(where: str) -> Callable[[Argument], bool]:
    def convert(value: object) -> bool:
        if value is True or value is False or (isinstance(value, int) and value in (0, 1)):
            return bool(value)
        raise TypeError(f"{where}: found {_named(value)}, expected a bool")

    return convert


def _named(value: object) -> str:
    return "a tensor" if hasattr(value, "data_ptr") else f"{value!r:.60} ({type(value).__name__})"
