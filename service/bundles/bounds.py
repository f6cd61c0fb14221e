"""Bounds of what a document from outside may hold: names, numbers and their order."""

from __future__ import annotations

from typing import Any, NotRequired, get_args, get_origin, get_type_hints, is_typeddict

from warpsmith.workers.judge.protocol.contract import BrokenDocument, short

LARGEST_NUMBER = 1e30
"""Largest number of a verdict: far above any time, error, ratio or count of the judge.

Squares of smaller numbers stay finite.
"""
LEAST_NUMBER = 1e-30
"""Smallest number of a verdict that has to be positive: the ratio of two of them is finite and has a logarithm."""


def check_interval(interval: list[float], path: str) -> None:
    if len(interval) != 2 or interval[0] > interval[1]:
        raise BrokenDocument(path, short(interval), "the lower and the upper end")
    for end in interval:
        check_range(end, path, least=0.0)


def check_range(value: float, path: str, least: float | None = None) -> None:
    """Raise BrokenDocument for a number that is too large, or below `least` (LEAST_NUMBER, so it is positive)."""
    least = LEAST_NUMBER if least is None else least
    if not least <= value <= LARGEST_NUMBER:
        raise BrokenDocument(path, value, f"a number from {least:g} to {LARGEST_NUMBER:g}")


def check_all_names(kind: Any, value: Any, path: str) -> None:
    """Raise BrokenDocument where a name within `value`, which is of `kind`, is not one of its TypedDict's."""
    origin = get_origin(kind)
    if origin is NotRequired:
        check_all_names(get_args(kind)[0], value, path)
    elif origin is list:
        for position, item in enumerate(value):
            check_all_names(get_args(kind)[0], item, f"{path}[{position}]")
    elif is_typeddict(kind):
        declared = get_type_hints(kind, include_extras=True)
        for name, item in value.items():
            if name not in declared:
                raise BrokenDocument(f"{path}.{name}"[:200], short(item), "no field of this name")
            check_all_names(declared[name], item, f"{path}.{name}")


def check_names(kind: Any, document: dict[str, Any], path: str) -> None:
    """Raise BrokenDocument where a name is not one of the TypedDict's."""
    for name, value in document.items():
        if name not in kind.__annotations__:
            raise BrokenDocument(f"{path}{name}"[:200], short(value), "no field of this name")
