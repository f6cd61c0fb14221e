"""Read a frozen dataclass of numbers and switches from JSON; errors name the field."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field, fields
from functools import cache
from typing import Any, TypeVar

from warpsmith.kernels_db.spec.errors import SpecError
from warpsmith.kernels_db.spec.near_misses import one_of

T = TypeVar("T")


def whole(default: int, *, least: int = 1, most: int) -> int:
    """Declare a dataclass field: a whole number from `least` to `most`."""
    value: int = field(default=default, metadata={"kind": int, "least": least, "most": most})
    return value


def number(default: float, *, least: float, most: float, above: bool = False) -> float:
    """Declare a dataclass field: a number from `least` (excluded where `above`) to `most`."""
    value: float = field(default=default, metadata={"kind": float, "least": least, "most": most, "above": above})
    return value


def switch(default: bool) -> bool:
    """Declare a dataclass field: true or false."""
    value: bool = field(default=default, metadata={"kind": bool})
    return value


def read(cls: type[T], document: Mapping[str, Any], path: str) -> T:
    """Read `cls` from `document`; missing fields keep their defaults.

    Raises SpecError: a name that `cls` does not have, a value of another type or outside its limits. `path` leads the
    field's name.
    """
    known = limits_of(cls)  # type: ignore[arg-type] # a class is hashable
    values: dict[str, Any] = {}
    for name, found in document.items():
        if name not in known:
            raise SpecError(f"{path}.{name}", found, one_of(name, known))
        values[name] = _checked(f"{path}.{name}", found, known[name])
    return cls(**values)


@cache
def limits_of(cls: type[Any]) -> Mapping[str, Mapping[str, Any]]:
    """Return the limits of each field of a dataclass of the fields above, by name."""
    return {one.name: one.metadata for one in fields(cls)}


def _checked(path: str, found: object, limits: Mapping[str, Any]) -> bool | int | float:
    if limits["kind"] is bool:
        if not isinstance(found, bool):
            raise SpecError(path, found, "true or false")
        return found
    kinds = int if limits["kind"] is int else (int, float)
    if not isinstance(found, kinds) or isinstance(found, bool) or not _within(found, limits):
        raise SpecError(path, found, describe(limits))
    return found


def _within(found: float, limits: Mapping[str, Any]) -> bool:
    """Check whether a number is within a field's limits; NaN never is."""
    return limits["least"] <= found <= limits["most"] and not (limits.get("above") and found == limits["least"])


def describe(limits: Mapping[str, Any]) -> str:
    """Say in words what a field's limits ask for: "a whole number from 1 to 64"."""
    noun = "a whole number" if limits["kind"] is int else "a number"
    if limits.get("above"):
        return f"{noun} above {limits['least']:g} and at most {limits['most']:g}"
    return f"{noun} from {limits['least']:g} to {limits['most']:g}"
