"""Smaller arguments for a task, and what its results at small sizes say of those at large ones. Pure functions."""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

AFFORDABLE = 1 << 26
"""Elements of data above which no result is computed with values where smaller calls show its sizes."""

SEARCH_S = 20.0
"""Seconds for the smaller calls of one task."""

LEAST_SIZE = 4
MOST_STEPS = 16
"""Sizes of an argument that are tried: each twice the one before."""

Workload = dict[str, Any]
Call = Callable[[dict[str, Any]], Workload | None]
"""Describes the workload with some arguments; None where the task does not take them."""


def sizes_of(arguments: Mapping[str, Any]) -> dict[str, int]:
    """Return the arguments that may be lowered."""
    return {
        name: value for name, value in arguments.items() if name != "seed" and type(value) is int and value > LEAST_SIZE
    }


def smaller_calls(
    arguments: Mapping[str, Any], sizes: Mapping[str, int], call: Call, end: float
) -> Iterator[tuple[dict[str, Any], Workload]]:
    """Yield the arguments and the workloads of smaller calls, the smallest first, until the time `end`.

    All of `sizes` fall together, each to another size where the task takes that, and else those that are equal to the
    same one: a size may have to be that of another.
    """
    for apart in (True, False):
        found = False
        for step in range(MOST_STEPS):
            if time.monotonic() > end:
                return
            lowered = _lowered(sizes, step, apart=apart)
            if lowered == sizes:
                break
            workload = call({**arguments, **lowered})
            if workload is not None:
                found = True
                yield {**arguments, **lowered}, workload
        if found:
            return


def _lowered(sizes: Mapping[str, int], step: int, *, apart: bool) -> dict[str, int]:
    """Return each size halved to the lowest that divides it, then doubled `step` times."""
    lowered: dict[str, int] = {}
    for name, size in sorted(sizes.items(), key=lambda item: item[1]):
        falling = [size]
        while falling[-1] % 2 == 0 and falling[-1] // 2 >= LEAST_SIZE:
            falling.append(falling[-1] // 2)
        rising = falling[::-1][step:] or [size]
        taken = {other for known, other in lowered.items() if apart or sizes[known] != size}
        lowered[name] = next((one for one in rising if one not in taken), size)
    return lowered


def elements(workload: Mapping[str, Any]) -> int:
    """Return how many elements the data and the results of a workload have."""
    leaves = [*workload["inputs"], *workload.get("outputs", [])]
    return sum(math.prod(leaf["shape"]) for leaf in leaves if leaf["shape"] is not None)


def inferred(data: Mapping[str, Any], calls: Iterator[tuple[dict[str, Any], Workload]]) -> Workload | None:
    """Return the workload of `data` with results whose sizes follow from its own as they do in two smaller calls.

    `data`: its `structure` and its `inputs`. None where the calls are not of its kind, or leave a size open.
    """
    shown = [workload for _, workload in itertools.islice(calls, 2)]
    if len(shown) < 2 or any(kind(each) != kind(data) for each in shown):
        return None
    outputs = []
    for number, output in enumerate(shown[0]["outputs"]):
        sizes = [each["outputs"][number]["shape"] for each in shown]
        if len({len(shape) for shape in sizes}) > 1:
            return None
        shape = [_size(data, shown, [each[position] for each in sizes]) for position in range(len(sizes[0]))]
        if None in shape:
            return None
        outputs.append({"shape": shape, "dtype": output["dtype"]})
    return {**data, **{part: shown[0][part] for part in ("result", "written", "unread", "aliases")}, "outputs": outputs}


def _size(data: Mapping[str, Any], shown: Sequence[Workload], sizes: Sequence[int]) -> int | None:
    """Return the size that `data` has where the smaller calls have `sizes`; None where they leave it open."""
    found = {
        data["inputs"][number]["shape"][position]
        for number, leaf in enumerate(shown[0]["inputs"])
        for position in range(len(leaf["shape"] or []))
        if [each["inputs"][number]["shape"][position] for each in shown] == list(sizes)
    }
    if not found and len(set(sizes)) == 1:
        return sizes[0]
    return found.pop() if len(found) == 1 else None


def kind(workload: Mapping[str, Any]) -> Any:
    """Return what workloads that differ in sizes alone have in common: the structure of the data, dtypes and ranks."""
    leaves = [(leaf["dtype"], None if leaf["shape"] is None else len(leaf["shape"])) for leaf in workload["inputs"]]
    return workload["structure"], leaves
