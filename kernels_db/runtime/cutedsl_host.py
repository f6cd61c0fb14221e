"""What the host function of a CuTe DSL kernel launches, found by interpreting its lowered code.

The DSL compiles a `@cute.jit` function to native code that launches its kernels. That code is never run here: its LLVM
operations are interpreted, those of an allow-list alone, and the only function that they may call is the launch. What
comes out is what a launch needs: kernel, grid, block, shared memory, attributes, and the bytes of each parameter.

Tensors have made-up addresses meanwhile. The code is interpreted twice, with others the second time: a word of a
parameter that moved with a tensor's address is that tensor's address plus a constant, in a tensor map too, and nothing
else may differ.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from .errors import CompileError

LAUNCH = "_cudaLaunchKernelEx"
PRINT = "printf"
"""Called where a launch asks for more than the architecture has, which is said better elsewhere."""
MOST_STEPS = 200_000
_DYNAMIC = -(1 << 31)  # of getelementptr: the index is an operand
_ATTRIBUTE_BYTES = 72
_HOST, _APART = 1 << 20, 1 << 36
_MOVED = 1 << 33

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
            ((one[0] + 1) * _APART + move + one[1], one[0]) if isinstance(one, tuple) else one for one in arguments
        ]
        runs.append((_Interpreter(function, places).run(), places))
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


@dataclass
class _Type:
    """A type of LLVM's: size and alignment in bytes; offset and type of each element."""

    size: int
    alignment: int
    elements: list[tuple[int, _Type]] = field(default_factory=list)


_TOKEN = re.compile(r"[a-z]\w*|\d+|[<>(),]")
_SCALAR = re.compile(r"(?:i|f|bf)(\d+)")
_types: dict[str, _Type] = {}


def _type(text: str) -> _Type:
    """The layout of a type by its spelling. Raises CompileError for one that is not known here."""
    if text not in _types:
        tokens = _TOKEN.findall(text.removeprefix("!llvm."))[::-1]
        _types[text] = _parsed(tokens, text)
    return _types[text]


def _parsed(tokens: list[str], text: str) -> _Type:
    """The type that `tokens` begin with, from their end; its tokens are taken."""
    head = tokens.pop() if tokens else ""
    scalar = _SCALAR.fullmatch(head)
    if scalar is not None:
        size = (int(scalar[1]) + 7) // 8
        return _Type(size, min(size, 8))
    if head == "ptr":
        if tokens and tokens[-1] == "<":  # an address space
            del tokens[-3:]
        return _Type(8, 8)
    if head == "array" and len(tokens) > 3:
        count = int(tokens[-2])
        del tokens[-3:]  # < count x
        element = _parsed(tokens, text)
        tokens.pop()
        return _Type(count * element.size, element.alignment, [(i * element.size, element) for i in range(count)])
    if head == "struct":
        del tokens[-2:]
        return _structure(tokens, text)
    raise CompileError(f"the host function uses the type {text[:80]!r}, which is not known here")


def _structure(tokens: list[str], text: str) -> _Type:
    made = _Type(0, 1)
    while tokens[-1] != ")":
        element = _parsed(tokens, text)
        start = _rounded(made.size, element.alignment)
        made.elements.append((start, element))
        made.size, made.alignment = start + element.size, max(made.alignment, element.alignment)
        if tokens[-1] == ",":
            tokens.pop()
    del tokens[-2:]
    made.size = _rounded(made.size, made.alignment)
    return made


def _rounded(value: int, to: int) -> int:
    return (value + to - 1) // to * to


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
_SAME = frozenset({"ptrtoint", "inttoptr", "addrspacecast", "bitcast", "freeze", "zext", "trunc", "sext"})


def _truncated(a: int, b: int) -> int:
    quotient = abs(a) // abs(b)
    return quotient if (a < 0) == (b < 0) else -quotient


class _Interpreter:
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
        kind = _type(str(operation.results[0].type))
        if name in ("mlir.poison", "mlir.undef", "mlir.zero"):
            return bytes(kind.size)
        if name == "mlir.constant":
            return _constant(operation.attributes["value"], kind.size)
        if name == "mlir.addressof":
            return self._named(str(operation.attributes["global_name"]).removeprefix("@").strip('"'))
        if name == "alloca":
            element = _type(str(operation.attributes["elem_type"]).removeprefix("!llvm."))
            return self._allocated(element.size * self._number(given[0]))
        if name == "getelementptr":
            return self._element_address(operation, given)
        if name == "load":
            return self._area(self._number(given[0]), kind.size)
        if name in ("extractvalue", "insertvalue"):
            whole = self._value(given[0])
            inner, start = _type(str(given[0].type)), 0
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
            return _bytes(_signed(value, size) if name == "sext" else value, kind.size)
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
        self._next = _rounded(address + max(size, 1) + 64, 64)  # apart, so that no area runs into the next
        if self._next >= _APART:
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
        element = _type(str(operation.attributes["elem_type"]).removeprefix("!llvm."))
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
            self._values[hash(result)] = bytes(_type(str(result.type)).size)

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
    size = _type(kind).size
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
