"""The tolerance of a task: what `check_implementation` gives its comparison."""

from __future__ import annotations

import ast
import math
from collections.abc import Iterator
from typing import Any

from warpsmith.kernels_db.formats.shared import python_source
from warpsmith.kernels_db.formats.shared.files import refused

CHECKER = "check_implementation"


def tolerance_of(tree: ast.Module, where: str) -> tuple[dict[str, float] | None, list[str]]:
    """Return rtol and atol of `check_implementation`, or None, and notes.

    They are taken where it, or a function that it names in the file, gives a call both as numbers. Two different
    pairs are no tolerance. Raises SpecErrors where a number is none.
    """
    pairs = {
        (_finite(rtol, f"{where}: rtol"), _finite(atol, f"{where}: atol"))
        for call in _calls_under(tree, CHECKER)
        if (rtol := _number(call, "rtol")) is not None and (atol := _number(call, "atol")) is not None
    }
    if len(pairs) > 1:
        said = "; ".join(f"rtol={rtol:g}, atol={atol:g}" for rtol, atol in sorted(pairs))
        return None, [f"the checker has several tolerances ({said}), and the op none of them"]
    return next(({"rtol": rtol, "atol": atol} for rtol, atol in pairs), None), []


def _calls_under(tree: ast.Module, name: str) -> Iterator[ast.Call]:
    """Yield the calls in a name's top-level definitions, and in those of the names in these."""
    definitions: dict[str, list[ast.stmt]] = {}
    for statement in tree.body:
        for defined in python_source.bound(statement):
            definitions.setdefault(defined, []).append(statement)
    left, seen = [name], {name, "ref_kernel", "generate_input"}  # which compute, and check nothing
    while left:
        for statement in definitions.get(left.pop(), []):
            for node in ast.walk(statement):
                if isinstance(node, ast.Call):
                    yield node
                elif isinstance(node, ast.Name) and node.id not in seen:
                    seen.add(node.id)
                    left.append(node.id)


def _number(call: ast.Call, name: str) -> int | float | None:
    """Return a keyword argument where it is written as a number."""
    for item in call.keywords:
        if item.arg == name and isinstance(item.value, ast.Constant):
            value = item.value.value
            return value if isinstance(value, int | float) and not isinstance(value, bool) else None
    return None


def _finite(value: Any, field: str) -> float:
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise refused(field, value, "a finite number")
    return number
