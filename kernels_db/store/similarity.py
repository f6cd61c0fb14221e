"""Which ops are alike enough that a kernel of one is worth trying for the other.

Pure functions of specs. Two ops are alike where `run` takes the same: as many inputs and outputs, of the same
dtypes and ranks, in the same order, with the same ones mutated; and where they compute alike: the same
semantic digest, the same declared family, or references whose operations have a Jaccard similarity of at least
LEAST. Whether a kernel then computes the right result, the judge decides.
"""

from __future__ import annotations

import ast
from functools import lru_cache

from warpsmith.kernels_db.job.python_parsing import parse_module
from warpsmith.kernels_db.job.reference_operations import operations
from warpsmith.kernels_db.spec.resolve import arguments
from warpsmith.kernels_db.spec.schema import Op

LEAST, MOST = 0.6, 0.99
"""The bounds of the similarity of ops that are not the same.

LEAST: the share of the operations of either reference that both must have. MOST: the highest similarity of an
op that is not the same.
"""


def similarity(op: Op, other: Op) -> float:
    """Return 1 for the same op, from LEAST to MOST for one alike, 0 for any other."""
    if op.semantic_digest == other.semantic_digest:
        return 1.0
    if _signature(op) != _signature(other):
        return 0.0
    found = jaccard(operations(op.reference), operations(other.reference))
    if op.family is not None and op.family == other.family:
        return min(max(found, LEAST), MOST)
    return min(found, MOST) if found >= LEAST else 0.0


def jaccard(one: frozenset[str], other: frozenset[str]) -> float:
    """Return the share of all names that both have; 0 where there are none."""
    return len(one & other) / len(one | other) if one | other else 0.0


def fits(source: str, op: Op) -> bool:
    """Check whether the candidate's `run` takes as many arguments as the op has.

    The op's are its inputs and outputs.
    """
    return count_run_arguments(source) == len(arguments(op)) + len(op.outputs)


@lru_cache(maxsize=512)
def count_run_arguments(source: str) -> int | None:
    """Count the arguments of the candidate's `run`; None where it has none, or takes others than positional ones."""
    try:
        tree = parse_module(source)
    except (SyntaxError, ValueError):
        return None
    for node in tree.body:
        if isinstance(node, ast.FunctionDef) and node.name == "run":
            given = node.args
            plain = not (given.vararg or given.kwarg or given.kwonlyargs)
            return len(given.posonlyargs) + len(given.args) if plain else None
    return None


def _signature(op: Op) -> list[tuple[object, ...]]:
    """Return the kinds of the arguments of `run`, without names and sizes."""
    inputs = [(item.dtype, None if item.shape is None else len(item.shape), item.mutated) for item in arguments(op)]
    return [*inputs, *((item.dtype, len(item.shape), "output") for item in op.outputs)]
