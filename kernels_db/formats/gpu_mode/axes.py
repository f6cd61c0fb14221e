"""Axes inferred from the sizes that a task's tensors have in all of its workloads.

Pure functions of numbers.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from warpsmith.kernels_db.formats.shared.files import refused
from warpsmith.kernels_db.spec.names import Names, identifier

MOST_FACTOR = 4096
"""Largest constant that an inferred expression has."""

MOST_AXES = 128
"""Of one task: every output's size is held against all of them."""


class Axes:
    """The axes of one task, named as dimensions come.

    A dimension of one size in all workloads is a number. One whose sizes are those of an argument of `generate_input`
    is an axis of that name; of an output, one that follows from known axes by one step (twice as many, one less, the
    product of two ...) is an expression; any other of an input is an axis of its own.
    """

    def __init__(self, calls: Sequence[Mapping[str, Any]], where: str) -> None:
        """`calls`: the arguments of each workload; `where` names the task in errors."""
        self._where = where
        self._count = len(calls)
        arguments: dict[str, tuple[Any, ...]] = {
            identifier(name, "axis"): tuple(call.get(name) for call in calls)
            for name in (calls[0] if calls else {})
            if name != "seed" and all(type(call.get(name)) is int for call in calls)
        }
        self._names = Names()
        self._by_sizes: dict[tuple[int, ...], str] = {}
        for name, sizes in arguments.items():
            self._by_sizes.setdefault(sizes, self._names.new(name))
        self._axes: dict[str, tuple[int, ...]] = {}
        self._expressions: dict[str, str] = {}
        """Names by their texts."""

    def shape(self, what: str, shapes: Sequence[Sequence[int]], *, derived: bool = False) -> list[int | str]:
        """Return the shape of one tensor, given its sizes in each workload.

        Raises SpecErrors where a dimension of a `derived` tensor, an output, follows from no axis.
        """
        return [
            self._dimension(f"{what}_{position}", tuple(shape[position] for shape in shapes), derived)
            for position in range(len(shapes[0]))
        ]

    def _dimension(self, name: str, sizes: tuple[int, ...], derived: bool) -> int | str:
        if len(set(sizes)) == 1:
            return sizes[0]
        axis = self._by_sizes.get(sizes)
        if axis is None and not derived:
            axis = self._by_sizes[sizes] = self._names.new(identifier(name, "axis"))
        if axis is not None:
            self._axes[axis] = sizes
            if len(self._axes) > MOST_AXES:
                raise refused(f"{self._where}: {name}", f"axis {len(self._axes)}", f"at most {MOST_AXES} axes")
            return axis
        text = next(_expressions(self._axes, sizes), None)
        if text is None:
            found = f"sizes {', '.join(map(str, sizes[:8]))}"
            raise refused(f"{self._where}: {name}", found, "sizes that follow from the inputs' by one operation")
        return self._expression(name, text)

    def _expression(self, name: str, text: str) -> str:
        if text not in self._expressions:
            self._expressions[text] = self._names.new(identifier(name, "axis"))
        return self._expressions[text]

    def declared(self) -> dict[str, dict[str, str]]:
        """Return the `axes` of the spec."""
        return {name: {"kind": "var"} for name in self._axes} | {
            name: {"kind": "expr", "expr": text} for text, name in self._expressions.items()
        }

    def sizes(self, workload: int) -> dict[str, int]:
        """Return the sizes of one workload."""
        return {name: sizes[workload] for name, sizes in self._axes.items()}


def _expressions(axes: Mapping[str, tuple[int, ...]], sizes: tuple[int, ...]) -> Iterator[str]:
    """Yield expressions over the axes equal to `sizes` in every workload, the plainest first."""
    for name, known in axes.items():
        if sizes[0] % known[0] == 0 and sizes == tuple(size * (sizes[0] // known[0]) for size in known):
            yield f"{name} * {sizes[0] // known[0]}"
        if known[0] % sizes[0] == 0 and known == tuple(size * (known[0] // sizes[0]) for size in sizes):
            yield f"{name} // {known[0] // sizes[0]}"
        step = sizes[0] - known[0]
        if abs(step) <= MOST_FACTOR and sizes == tuple(size + step for size in known):
            yield f"{name} {'+' if step > 0 else '-'} {abs(step)}"
    by_sizes = {known: name for name, known in axes.items()}
    for one, left in axes.items():
        products = all(size % known == 0 for size, known in zip(sizes, left, strict=True))
        factors = tuple(size // known for size, known in zip(sizes, left, strict=True))
        if products and by_sizes.get(factors, one) != one:
            yield f"{one} * {by_sizes[factors]}"
        addends = tuple(size - known for size, known in zip(sizes, left, strict=True))
        if by_sizes.get(addends, one) != one:
            yield f"{one} + {by_sizes[addends]}"
    yield from _differences(axes, sizes)


def _differences(axes: Mapping[str, tuple[int, ...]], sizes: tuple[int, ...]) -> Iterator[str]:
    """Yield expressions `one - other + step`, the smallest step of each `one`."""
    # What has to be taken from `one` differs from `other` by the same step in every workload.
    alike: defaultdict[tuple[int, ...], list[tuple[int, str]]] = defaultdict(list)
    for name, known in axes.items():
        alike[_from_first(known)].append((known[0], name))
    for others in alike.values():
        others.sort()
    for one, left in axes.items():
        taken = tuple(known - size for known, size in zip(left, sizes, strict=True))
        others = alike.get(_from_first(taken), [])
        place = bisect_left(others, (taken[0], ""))
        near = [(abs(first - taken[0]), first, other) for first, other in others[max(0, place - 1) : place + 1]]
        for distance, first, other in sorted(near):
            if distance <= MOST_FACTOR:
                step = first - taken[0]
                yield f"{one} - {other}" + (f" {'+' if step > 0 else '-'} {abs(step)}" if step else "")


def _from_first(sizes: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(size - sizes[0] for size in sizes)
