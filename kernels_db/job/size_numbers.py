"""The whole numbers of a candidate at which it may take another way for another size. Standard library only.

`if batch > 2112:` splits the sizes in two, and a kernel may be right on one side alone; `float kept[128]` holds no
more, and an index of 16 bits counts to 65,536. Hold-outs are derived on every side that no other shape lies on.
Host code and Triton kernels are read from their syntax tree, C++ and CUDA by their tokens (`native_numbers`).
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Iterator, Mapping

from warpsmith.kernels_db.job.native_numbers import MOST_BITS, NARROW, Found, SizeNumbers, native_numbers
from warpsmith.kernels_db.job.python_parsing import parse_module

_FOLDED: dict[type[ast.operator], Callable[[int, int], int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.LShift: operator.lshift,
    ast.RShift: operator.rshift,
    ast.Pow: operator.pow,
}
_BOUNDS = frozenset({"min", "max", "minimum", "maximum", "clamp"})
_NO_SIZES = frozenset({"num_warps", "num_stages", "num_ctas", "flags", "dim", "axis"})
"""Arguments by name that are no sizes."""


def size_numbers(source: str) -> SizeNumbers:
    """Return the numbers of a candidate, those of its C++ and CUDA text among them.

    Constants count by their names, sums and products of constants by their values. Empty for what is no Python: the
    judge says so.
    """
    found = Found()
    try:
        module = parse_module(source)
        _read(module, _constants(module), found)
        for text in _native(module):
            native_numbers(text, found)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return Found().numbers()
    return found.numbers()


def _native(module: ast.Module) -> Iterator[str]:
    """Yield the strings that hold C++ or CUDA: a body in braces, or a preprocessor line."""
    for node in ast.walk(module):
        text = node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""
        if ("{" in text and ";" in text) or text.lstrip().startswith("#"):
            yield text


def _constants(module: ast.Module) -> dict[str, int]:
    """Return the names that stand for one whole number wherever they are given one.

    That of a module's constant, of a variable, and of an argument by name, as a Triton kernel's `BLOCK=128`.
    """
    known: dict[str, int] = {}
    several: set[str] = set()
    for node in ast.walk(module):
        name, value = None, None
        if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
            name, value = node.targets[0].id, _folded(node.value, known)
        elif isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name):
            name = node.target.id
        elif isinstance(node, ast.keyword):
            name, value = node.arg, _folded(node.value, known)
        if name is None:
            continue
        if value is None or known.setdefault(name, value) != value:
            several.add(name)
    return {name: value for name, value in known.items() if name not in several}


def _read(node: ast.AST, known: Mapping[str, int], found: Found) -> None:
    """Note every number below `node` by what is done with it."""
    for child in ast.iter_child_nodes(node):
        value = _folded(child, known) if isinstance(child, ast.expr) else None
        if value is None:
            _read(child, known, found)
        elif not _is_no_size(node, child):
            _note(node, child, value, found)
    if isinstance(node, ast.Attribute) and node.attr in NARROW:
        found.used.update(NARROW[node.attr])


def _is_no_size(parent: ast.AST, child: ast.AST) -> bool:
    """Check whether a number is an index of a tuple, a negative step or an option."""
    if isinstance(parent, ast.Subscript):
        return parent.slice is child
    return isinstance(parent, ast.keyword) and parent.arg in _NO_SIZES


def _note(parent: ast.AST, child: ast.AST, value: int, found: Found) -> None:
    match parent:
        case ast.Compare() | ast.MatchValue():
            found.compared.add(value)
        case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name)) if name in _BOUNDS:
            found.compared.add(value)
        case ast.BinOp(op=how) | ast.AugAssign(op=how) if not (
            _is_ordered(how) and getattr(parent, "left", None) is child
        ):
            match how:
                case ast.Mod():
                    found.modulus(value)
                case ast.BitAnd():
                    found.modulus(value + 1)
                case ast.FloorDiv() | ast.Div() | ast.Mult():
                    found.factor(value)
                case ast.LShift() | ast.RShift():
                    found.factor(1 << value if 0 <= value < MOST_BITS else 0)
                case ast.Add() | ast.Sub():
                    found.addend(value)
                case _:
                    found.used.add(value)
        case _:
            found.used.add(value)


def _is_ordered(how: ast.operator) -> bool:
    """Check whether the left operand of an operator is none that a size is divided by, shifted by or taken modulo."""
    return isinstance(how, (ast.Mod, ast.LShift, ast.RShift, ast.FloorDiv, ast.Div))


def _folded(node: ast.expr, known: Mapping[str, int]) -> int | None:
    """Return the value of an expression of whole numbers alone, else None."""
    match node:
        case ast.Constant(value=int(value)) if not isinstance(node.value, bool):
            return value
        case ast.Name(id=name):
            return known.get(name)
        case ast.BinOp(left=left, op=how, right=right) if type(how) in _FOLDED:
            one, other = _folded(left, known), _folded(right, known)
            if one is None or other is None or not _is_small(one, how, other):
                return None
            return _FOLDED[type(how)](one, other)
    return None


def _is_small(one: int, how: ast.operator, other: int) -> bool:
    """Check that a result is a number, of bounded length."""
    if abs(one) >> MOST_BITS or abs(other) >> MOST_BITS:
        return False
    if isinstance(how, (ast.LShift, ast.RShift, ast.Pow)):
        return 0 <= other <= MOST_BITS
    return not isinstance(how, ast.FloorDiv) or other != 0
