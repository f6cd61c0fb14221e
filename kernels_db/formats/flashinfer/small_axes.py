"""A spec of a Definition with smaller const axes, for a machine on which its own do not fit. Pure functions.

A reference mostly says such an axis again, in an assertion (`assert vocab_size == 128256`), which is changed with it.
Where it has the number elsewhere, the axis stays. What is not seen here, a size that two axes must agree on, shows when
the reference runs.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from typing import Any

from warpsmith.kernels_db.job.python_parsing import parse_module
from warpsmith.kernels_db.spec.errors import SpecErrors
from warpsmith.kernels_db.spec.op import parse_op
from warpsmith.kernels_db.spec.resolve import resolve_workload

LARGE_BYTES = 1 << 26
"""Of the inputs and outputs of a workload: a Definition with a smaller one stays as it is."""

SMALL_BYTES = 1 << 22
"""Of a workload that is small enough: no further axis is made smaller."""

SMALL_AXIS = 64
"""Axes are halved down to this, as long as they are even."""


def with_small_axes(document: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, int]] | None:
    """Return the document with smaller axes, the largest first, until it is small; and these axes.

    None where it is not large, or no axis can be made smaller. Raises SpecErrors where it is no spec.
    """
    if _bytes(document) <= LARGE_BYTES:
        return None
    lowered, sizes = dict(document), dict[str, int]()
    consts = {name: axis["value"] for name, axis in document["axes"].items() if type(axis.get("value")) is int}
    for name, size in sorted(consts.items(), key=lambda item: -item[1]):
        smaller = size
        while smaller % 2 == 0 and smaller // 2 >= SMALL_AXIS:
            smaller //= 2
        reference = _with_axis(lowered["reference"], name, size, smaller)
        if smaller == size or reference is None:
            continue
        axes = lowered["axes"] | {name: {"kind": "const", "value": smaller}}
        tried = lowered | {"axes": axes, "reference": reference}
        try:
            weight = _bytes(tried)
        except SpecErrors:  # a constraint that the smaller axis does not meet
            continue
        lowered, sizes = tried, sizes | {name: smaller}
        if weight <= SMALL_BYTES:
            break
    return (lowered, sizes) if sizes else None


def _bytes(document: Mapping[str, Any]) -> int:
    op = parse_op({name: value for name, value in document.items() if value is not None})
    return min(resolve_workload(op, workload)["min_bytes"] for workload in op.workloads)


def _with_axis(reference: str, name: str, old: int, new: int) -> str | None:
    """Return the reference with another size of an axis; None where it has the old one outside of assertions on it."""
    tree = parse_module(reference)
    asserted = [
        right
        for statement in ast.walk(tree)
        if isinstance(statement, ast.Assert)
        for node in ast.walk(statement.test)
        if isinstance(node, ast.Compare) and ast.unparse(node.left) == name
        for right in node.comparators
        if len(node.ops) == 1 and isinstance(node.ops[0], ast.Eq)
    ]
    numbers = [node for node in ast.walk(tree) if isinstance(node, ast.Constant) and node.value == old]
    if any(node not in asserted for node in numbers if type(node.value) is int):
        return None
    lines = reference.encode().split(b"\n")
    for node in sorted(numbers, key=lambda node: (node.lineno, node.col_offset), reverse=True):
        line = lines[node.lineno - 1]
        lines[node.lineno - 1] = line[: node.col_offset] + str(new).encode() + line[node.end_col_offset :]
    return b"\n".join(lines).decode()
