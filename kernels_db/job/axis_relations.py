"""What holds between the sizes of two axes in every shape that was verified. Standard library only.

A kernel that takes a row's stride from the wrong axis is right wherever the two are equal. So hold-outs are derived
where such relations hold, since an op may mean them, and an export serves no call where one does not.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import permutations
from typing import Literal

Relation = tuple[str, Literal["==", "<=", "%"], str]
"""Two axes are equal; the first is at most the second; the first is a multiple of the second."""


def find_relations(shapes: Sequence[Mapping[str, int]], axes: Sequence[str]) -> list[Relation]:
    """Return the relations between two of `axes` that hold in all shapes."""
    found: list[Relation] = []
    for one, other in permutations(axes, 2):
        pairs = [(shape[one], shape[other]) for shape in shapes]
        if all(left == right for left, right in pairs):
            if (other, "==", one) not in found:
                found.append((one, "==", other))
            continue
        if all(left <= right for left, right in pairs):
            found.append((one, "<=", other))
        if all(left % right == 0 for left, right in pairs) and any(right > 1 for _, right in pairs):
            found.append((one, "%", other))
    return found


def holds(relation: Relation, sizes: Mapping[str, int]) -> bool:
    """Check whether a relation holds between sizes."""
    one, how, other = relation
    left, right = sizes[one], sizes[other]
    return left == right if how == "==" else left <= right if how == "<=" else left % right == 0
