"""The whole numbers with which a candidate's host code compares: where it may take another way. Standard library only.

`if batch > 2112:` splits the sizes in two, and a kernel may be right on one side alone. Hold-outs are derived on every
side that no other shape lies on.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Iterator, Mapping

MOST_BITS = 63
"""Of a number that counts: no size is larger, and no shift may be."""

_FOLDED: dict[type[ast.operator], Callable[[int, int], int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.LShift: operator.lshift,
    ast.Pow: operator.pow,
}


def compared_numbers(source: str) -> list[int]:
    """Return the positive numbers that host code compares with or bounds by `min` and `max`, each once, rising.

    Constants of the module count by their names, sums and products of constants by their values. Code of kernels
    (decorated functions, strings of C++ and CUDA) is not looked at. Empty for what is no Python: the judge says so.
    """
    try:
        module = ast.parse(source)
        known = _constants(module)
        values = {_folded(side, known) for side in _sides(module)}
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return []
    return sorted(value for value in values if value is not None and 0 < value < 1 << MOST_BITS)


def _constants(module: ast.Module) -> dict[str, int]:
    """Return the module's names of whole numbers."""
    known: dict[str, int] = {}
    for statement in module.body:
        if isinstance(statement, ast.Assign) and len(statement.targets) == 1:
            target, value = statement.targets[0], _folded(statement.value, known)
            if isinstance(target, ast.Name) and value is not None:
                known[target.id] = value
    return known


def _sides(module: ast.Module) -> Iterator[ast.expr]:
    """Yield both sides of every comparison, and the arguments of `min` and `max`, outside of kernels."""
    todo: list[ast.AST] = [module]
    while todo:
        node = todo.pop()
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)) and node.decorator_list:
            continue
        if isinstance(node, ast.Compare):
            yield node.left
            yield from node.comparators
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in {"min", "max"}:
            yield from node.args
        todo.extend(ast.iter_child_nodes(node))


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
    if isinstance(how, (ast.LShift, ast.Pow)):
        return 0 <= other <= MOST_BITS
    return not isinstance(how, ast.FloorDiv) or other != 0
