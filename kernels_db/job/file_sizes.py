"""The sizes that a Python file sets at its top, and the same file with others.

`batch_size = 128`, `features = 2 * 64` and the numbers of `shape = (32, 64)` are such sizes. Standard library only: the
judge asks, too.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Iterator, Mapping

from warpsmith.kernels_db.job.python_parsing import parse_module

MOST = 1 << 31
"""Sizes are below this; an expression with a larger number in it is none."""

_OPERATORS: dict[type[ast.operator], Callable[[int, int], int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
}


def sizes_of(text: str) -> dict[str, int]:
    """Return the whole numbers above 1 that the file's top level sets once, by name: `batch_size`, `shape[0]`.

    There are none in a text that is no Python.
    """
    return {name: number for name, (_, number) in _places(text).items() if number > 1}


def with_sizes(text: str, sizes: Mapping[str, int]) -> str:
    """Return the text with other numbers at these names.

    Raises ValueError where a name is no size of the text, or its place cannot be found.
    """
    places = _places(text)
    if unknown := sorted(set(sizes) - set(places)):
        raise ValueError(f"sizes: found {unknown[0]!r}, expected one of {', '.join(places) or 'none'}")
    lines = text.encode("utf-8", "surrogatepass").split(b"\n")
    lines += [b""] * (max((node.lineno for node, _ in places.values()), default=0) - len(lines))  # lines that end in \r
    for name in sorted(sizes, key=lambda name: (places[name][0].lineno, places[name][0].col_offset), reverse=True):
        node = places[name][0]
        line = lines[node.lineno - 1]
        lines[node.lineno - 1] = line[: node.col_offset] + str(sizes[name]).encode() + line[node.end_col_offset :]
    changed = b"\n".join(lines).decode("utf-8", "surrogatepass")
    expected = {name: number for name, (_, number) in places.items()} | dict(sizes)
    if {name: number for name, (_, number) in _places(changed).items()} != expected:
        raise ValueError("sizes: found lines that end in another way, expected \\n or \\r\\n")
    return changed


def _places(text: str) -> dict[str, tuple[ast.expr, int]]:
    """Return the expression and the value of each size, by name."""
    try:
        tree = parse_module(text)
    except (SyntaxError, ValueError):
        return {}
    found: dict[str, list[ast.expr | None]] = {}
    for statement in tree.body:
        for name, value in _bound(statement):
            found.setdefault(name, []).append(value)
    return {
        place: (node, number)
        for name, values in found.items()
        if len(values) == 1 and values[0] is not None  # set twice: which of them counts is not to be read here
        for place, node in _parts(name, values[0])
        if node.lineno == node.end_lineno and (number := _number(node)) is not None
    }


def _bound(statement: ast.stmt) -> Iterator[tuple[str, ast.expr | None]]:
    """Yield the names that a statement sets, with what they are set to; None where that is not to be seen."""
    if not isinstance(statement, ast.Assign):
        return
    value: ast.expr | None = statement.value
    for target in statement.targets:
        if isinstance(target, ast.Name):
            yield target.id, value
        elif isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple) and len(target.elts) == len(value.elts):
            pairs = zip(target.elts, value.elts, strict=True)
            yield from ((one.id, part) for one, part in pairs if isinstance(one, ast.Name))
        else:
            yield from ((node.id, None) for node in ast.walk(target) if isinstance(node, ast.Name))
        value = None  # `height = width = 128` is one size, by its first name


def _parts(name: str, value: ast.expr) -> Iterator[tuple[str, ast.expr]]:
    if isinstance(value, ast.Tuple | ast.List):
        yield from ((f"{name}[{position}]", item) for position, item in enumerate(value.elts))
    else:
        yield name, value


def _number(node: ast.expr) -> int | None:
    """Return the value of a whole number, or of an expression of such; None of anything else."""
    if isinstance(node, ast.Constant):
        return node.value if type(node.value) is int and 0 <= node.value < MOST else None
    if not isinstance(node, ast.BinOp) or type(node.op) not in _OPERATORS:
        return None
    left, right = _number(node.left), _number(node.right)
    if left is None or right is None or (right == 0 and isinstance(node.op, ast.FloorDiv)):
        return None
    number = _OPERATORS[type(node.op)](left, right)
    return number if 0 <= number < MOST else None
