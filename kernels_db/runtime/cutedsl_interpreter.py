"""An interpreter of the host functions that CuTe DSL compiles, in MLIR's LLVM dialect: it notes what they launch.

An allow-list of operations; memory is the function's own; the only call that does something is the launch of a kernel.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from .errors import CompileError
from .llvm_types import rounded, type_of

LAUNCH = "_cudaLaunchKernelEx"
PRINT = "printf"
"""Called where a launch asks for more than the architecture has, which is said better elsewhere."""
MOST_STEPS = 200_000
_DYNAMIC = -(1 << 31)  # of getelementptr: the index is an operand
_ATTRIBUTE_BYTES = 72
_HOST = 1 << 20
APART = 1 << 36
"""Where the function's own memory begins, and from where on tensors may lie."""

Word = tuple[int, int, int]
"""A word of a parameter that is an address: its offset in the parameter, the argument, bytes behind its start."""


@dataclass(frozen=True)
class Parameter:
    """The bytes of one parameter, and which of its words are addresses of arguments."""

    template: bytes
    words: tuple[Word, ...] = ()


@dataclass(frozen=True)
class HostLaunch:
    """One launch of a host function. attributes: number and up to three values, those that are not zero alone."""

    kernel: str
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    shared: int
    attributes: tuple[tuple[int, int, int, int], ...]
    parameters: tuple[Parameter, ...]


def _signed(value: int, size: int) -> int:
    bits = 8 * size
    return value - (1 << bits) if value >> (bits - 1) else value


_ARITHMETIC: dict[str, Callable[[int, int, int], int]] = {
    "add": lambda a, b, n: a + b,
    "sub": lambda a, b, n: a - b,
    "mul": lambda a, b, n: a * b,
    "udiv": lambda a, b, n: a // b,
    "urem": lambda a, b, n: a % b,
    "sdiv": lambda a, b, n: _truncated(_signed(a, n), _signed(b, n)),
    "srem": lambda a, b, n: _signed(a, n) - _signed(b, n) * _truncated(_signed(a, n), _signed(b, n)),
    "and": lambda a, b, n: a & b,
    "or": lambda a, b, n: a | b,
    "xor": lambda a, b, n: a ^ b,
    "shl": lambda a, b, n: a << b,
    "lshr": lambda a, b, n: a >> b,
    "ashr": lambda a, b, n: _signed(a, n) >> b,
    "intr.smax": lambda a, b, n: max(_signed(a, n), _signed(b, n)),
    "intr.smin": lambda a, b, n: min(_signed(a, n), _signed(b, n)),
    "intr.umax": lambda a, b, n: max(a, b),
    "intr.umin": lambda a, b, n: min(a, b),
}
"""By operation: operands without sign, and their bytes."""
_COMPARED: tuple[Callable[[int, int, int], bool], ...] = (
    lambda a, b, n: a == b,
    lambda a, b, n: a != b,
    lambda a, b, n: _signed(a, n) < _signed(b, n),
    lambda a, b, n: _signed(a, n) <= _signed(b, n),
    lambda a, b, n: _signed(a, n) > _signed(b, n),
    lambda a, b, n: _signed(a, n) >= _signed(b, n),
    lambda a, b, n: a < b,
    lambda a, b, n: a <= b,
    lambda a, b, n: a > b,
    lambda a, b, n: a >= b,
)
"""By the number of icmp's predicate."""
_BIT = "i1"
"""The type of a truth, which takes a byte here: its only bit counts."""

_SAME = frozenset({"ptrtoint", "inttoptr", "addrspacecast", "bitcast", "freeze", "zext", "trunc", "sext"})


def _truncated(a: int, b: int) -> int:
    quotient = abs(a) // abs(b)
    return quotient if (a < 0) == (b < 0) else -quotient


class Interpreter:
    """One call of a host function. Every value is its bytes, little-endian."""

    def __init__(self, function: Any, arguments: Sequence[tuple[int, int] | float]) -> None:
        self._function = function
        self._arguments = arguments  # a tensor by its address and its number
        self._values: dict[int, bytes] = {}  # by the hash of MLIR's value, as == of the DSL's would build code
        self._memory: dict[int, bytearray] = {}  # by the address at which each area starts
        self._names: dict[str, int] = {}
        self._next = _HOST
        self._launches: list[HostLaunch] = []

    def run(self) -> list[HostLaunch]:
        block = self._function.regions[0].blocks[0]
        parameters = list(block.arguments)
        if len(parameters) != len(self._arguments):
            raise CompileError(
                f"the host function takes {len(parameters)} arguments that are not constants, found "
                f"{len(self._arguments)}: expected each parameter annotated cute.Tensor, cutlass.Constexpr or by the "
                "type of a number"
            )
        for parameter, given in zip(parameters, self._arguments, strict=True):
            self._values[hash(parameter)] = _argument(given, str(parameter.type))
        steps = 0
        while block is not None:
            for each in block.operations:
                steps += 1
                if steps > MOST_STEPS:
                    raise CompileError(f"the host function takes more than {MOST_STEPS} steps")
                following = self._step(each.operation)
                if following is not None:
                    break
            else:
                raise CompileError("a block of the host function has no end")
            block = following or None
        return self._launches

    def _step(self, operation: Any) -> Any:  # noqa: PLR0911  one answer per operation
        """Do one operation. Returns the next block where it ends one, False at the end."""
        name = operation.name.removeprefix("llvm.")
        given = list(operation.operands)
        if name == "return":
            return False
        if name == "br":
            return self._enter(operation.successors[0], given)
        if name == "cond_br":
            sizes = _integers(operation, "operandSegmentSizes")
            taken = self._number(given[0]) & 1
            operands = given[1 : 1 + sizes[1]] if taken else given[1 + sizes[1] :]
            return self._enter(operation.successors[0 if taken else 1], operands)
        if name == "store":
            self._area(self._number(given[1]), len(self._value(given[0])), self._value(given[0]))
            return None
        if name == "call":
            self._call(operation, given)
            return None
        if name in ("intr.assume", "intr.lifetime.start", "intr.lifetime.end"):
            return None
        made = self._made(name, operation, given)
        if made is None:
            raise CompileError(f"the host function does {operation.name}, which is not known here")
        self._values[hash(operation.results[0])] = made
        return None

    def _made(  # noqa: PLR0911, PLR0912  one answer per operation
        self, name: str, operation: Any, given: list[Any]
    ) -> bytes | None:
        """The result of an operation; None for one that is not known."""
        kind = type_of(str(operation.results[0].type))
        if name in ("mlir.poison", "mlir.undef", "mlir.zero"):
            return bytes(kind.size)
        if name == "mlir.constant":
            return _constant(operation.attributes["value"], kind.size)
        if name == "mlir.addressof":
            return self._named(str(operation.attributes["global_name"]).removeprefix("@").strip('"'))
        if name == "alloca":
            element = type_of(str(operation.attributes["elem_type"]).removeprefix("!llvm."))
            return self._allocated(element.size * self._number(given[0]))
        if name == "getelementptr":
            return self._element_address(operation, given)
        if name == "load":
            return self._area(self._number(given[0]), kind.size)
        if name in ("extractvalue", "insertvalue"):
            whole = self._value(given[0])
            inner, start = type_of(str(given[0].type)), 0
            for position in _integers(operation, "position"):
                offset, inner = inner.elements[position]
                start += offset
            if name == "extractvalue":
                return whole[start : start + inner.size]
            return whole[:start] + self._value(given[1]) + whole[start + inner.size :]
        if name == "select":
            return self._value(given[1] if self._number(given[0]) & 1 else given[2])
        if name in _SAME:
            value, size = self._number(given[0]), len(self._value(given[0]))
            if str(given[0].type) == _BIT:
                value = -(value & 1) if name == "sext" else value & 1
            elif name == "sext":
                value = _signed(value, size)
            return _bytes(value & 1 if str(operation.results[0].type) == _BIT else value, kind.size)
        if name == "icmp":
            compared = _COMPARED[int(operation.attributes["predicate"].value)]
            numbers = self._number(given[0]), self._number(given[1])
            return bytes([compared(*numbers, len(self._value(given[0])))])
        if name in _ARITHMETIC:
            numbers = self._number(given[0]), self._number(given[1])
            try:
                return _bytes(_ARITHMETIC[name](*numbers, kind.size), kind.size)
            except (ZeroDivisionError, OverflowError, MemoryError) as error:
                raise CompileError(f"the host function computes {name} of {numbers}: {error}") from error
        return None

    def _enter(self, block: Any, operands: list[Any]) -> Any:
        values = [self._value(one) for one in operands]
        self._values.update(zip(map(hash, block.arguments), values, strict=True))
        return block

    def _value(self, value: Any) -> bytes:
        return self._values[hash(value)]

    def _number(self, value: Any) -> int:
        return int.from_bytes(self._value(value), "little")

    def _allocated(self, size: int) -> bytes:
        address = self._next
        self._next = rounded(address + max(size, 1) + 64, 64)  # apart, so that no area runs into the next
        if self._next >= APART:
            raise CompileError("the host function asks for too much memory")
        self._memory[address] = bytearray(size)
        return address.to_bytes(8, "little")

    def _named(self, name: str) -> bytes:
        """The address of a global, which holds that address: a kernel's handle is its global's name."""
        if name not in self._names:
            address = self._names[name] = int.from_bytes(self._allocated(8), "little")
            self._memory[address][:] = address.to_bytes(8, "little")
        return self._names[name].to_bytes(8, "little")

    def _area(self, address: int, size: int, value: bytes | None = None) -> bytes:
        """The bytes at an address of the function's own memory, written first where there is a value."""
        for start, area in self._memory.items():
            if start <= address and address + size <= start + len(area):
                if value is not None:
                    area[address - start : address - start + size] = value
                return bytes(area[address - start : address - start + size])
        raise CompileError("the host function reads or writes memory that is not its own")

    def _element_address(self, operation: Any, given: list[Any]) -> bytes:
        element = type_of(str(operation.attributes["elem_type"]).removeprefix("!llvm."))
        dynamic = iter(given[1:])
        address = self._number(given[0])
        for position, constant in enumerate(_integers(operation, "rawConstantIndices")):
            if constant == _DYNAMIC:
                operand = next(dynamic)
                index = _signed(self._number(operand), len(self._value(operand)))
            else:
                index = constant
            if position == 0:
                address += index * element.size
            else:
                if not 0 <= index < len(element.elements):
                    raise CompileError("the host function reads or writes memory that is not its own")
                offset, element = element.elements[index]
                address += offset
        return _bytes(address, 8)

    def _call(self, operation: Any, given: list[Any]) -> None:
        named = "callee" in operation.attributes
        callee = str(operation.attributes["callee"]).removeprefix("@") if named else "a pointer"
        if callee == LAUNCH:
            self._launch(*(self._number(one) for one in given))
        elif callee != PRINT:
            raise CompileError(f"the host function calls {callee}, expected launches of kernels alone")
        for result in operation.results:
            self._values[hash(result)] = bytes(type_of(str(result.type)).size)

    def _launch(self, config: int, handle: int, parameters: int) -> None:
        """Note a launch. The layout of the configuration is cudaLaunchConfig_t's, by driver_types.h."""
        *sizes, shared, _, listed, count = struct.unpack("<6IQQQI", self._area(config, 52))
        attributes = []
        for number in range(count):
            raw = self._area(listed + number * _ATTRIBUTE_BYTES, 20)
            (kind,), values = struct.unpack_from("<I", raw), struct.unpack_from("<3I", raw, 8)
            if any(values):
                attributes.append((kind, *values))
        name = next((name for name, address in self._names.items() if address == handle), "")
        self._launches.append(
            HostLaunch(
                name.removeprefix("kernels_"),
                (sizes[0], sizes[1], sizes[2]),
                (sizes[3], sizes[4], sizes[5]),
                shared,
                tuple(attributes),
                tuple(self._parameters(parameters)),
            )
        )

    def _parameters(self, address: int) -> Iterator[Parameter]:
        """The parameters of a launch: each lies in an area of its own, which is as long as it is."""
        for at in range(address, address + len(self._memory[address]), 8):
            area = self._memory.get(int.from_bytes(self._area(at, 8), "little"))
            if area is None:
                raise CompileError("the host function passes a kernel a parameter that is not known here")
            yield Parameter(bytes(area))


def _argument(given: tuple[int, int] | float, kind: str) -> bytes:
    """An argument as a parameter of the type `kind` holds it."""
    size = type_of(kind).size
    if isinstance(given, tuple):
        if size != 8:
            raise CompileError(f"a tensor is passed as {size} bytes, expected its address alone: a static layout")
        return _bytes(given[0], size)
    if kind in ("f32", "f64"):
        return struct.pack("<f" if kind == "f32" else "<d", given)
    if not kind.startswith("i") or isinstance(given, float):
        raise CompileError(f"a number of the host function: found {given!r} for a parameter of type {kind}")
    return _bytes(given, size)


def _bytes(value: int, size: int) -> bytes:
    return (value & ((1 << 8 * size) - 1)).to_bytes(size, "little")


def _constant(attribute: Any, size: int) -> bytes:
    value = getattr(attribute, "value", None)
    if isinstance(value, (bool, int)):
        return _bytes(int(value), size)
    if isinstance(value, float) and size in (4, 8):
        return struct.pack("<f" if size == 4 else "<d", value)
    raise CompileError(f"the host function has the constant {str(attribute)[:60]}, which is not known here")


def _integers(operation: Any, name: str) -> list[int]:
    return [int(one) for one in operation.attributes[name]]
