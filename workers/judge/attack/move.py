"""What a move is: a named change of one input, with parameters that JSON holds."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from warpsmith.kernels_db.job.documents import ResolvedInput
from warpsmith.workers.judge.attack.bounds import Kind

Change = dict[str, Any]
"""{"input": name, "move": name} and the move's parameters."""

Parameter = tuple[int, int] | tuple[float, float] | tuple[str, ...]
"""Smallest and largest whole number or number, both included, or the words to choose from."""

AXIS: Parameter = (0, 7)
EXPONENT: Parameter = (-1100, 1100)
DRAW: Parameter = (0, 2**31 - 1)


@dataclass(frozen=True)
class Target:
    """The input that a move changes: its values (floating ones in float64), its document, and a source of chance."""

    values: torch.Tensor
    item: ResolvedInput
    generator: torch.Generator

    def axis(self, change: Mapping[str, Any]) -> int:
        """Return the axis that a change names, taken round the input's own."""
        return int(change["axis"]) % max(1, self.values.dim())

    def along(self, axis: int) -> list[int]:
        """Return the shape of one number for each slice of an axis."""
        return [size if number == axis else 1 for number, size in enumerate(self.values.shape)]

    def uniform(self, shape: list[int] | torch.Size, low: float, high: float) -> torch.Tensor:
        """Return independent float64 numbers between two."""
        drawn = torch.rand(shape, dtype=torch.float64, generator=self.generator, device=self.values.device)
        return low + (high - low) * drawn

    def powers(self, shape: list[int] | torch.Size, change: Mapping[str, Any]) -> torch.Tensor:
        """Return powers of two with exponents drawn between a change's `low` and `high`."""
        low, high = sorted((int(change["low"]), int(change["high"])))
        return power_of_two(torch.floor(self.uniform(shape, low, high + 1)))


@dataclass(frozen=True)
class Move:
    """One way to change an input.

    apply: the values after a change. draw: parameters at random for an input. says: what a change does, as the rest of
    a sentence that begins with the input's name.
    """

    name: str
    kinds: frozenset[Kind]
    parameters: Mapping[str, Parameter]
    apply: Callable[[Target, Change], torch.Tensor]
    draw: Callable[[ResolvedInput, random.Random], dict[str, Any]]
    says: Callable[[Change], str]


def power_of_two(exponent: torch.Tensor) -> torch.Tensor:
    """Return exact powers of two in float64 for whole exponents, the nearest that is normal."""
    biased = exponent.clamp(-1022, 1023).to(torch.int64) + 1023
    return (biased << 52).view(torch.float64)


def exponents(item: ResolvedInput) -> tuple[int, int]:
    """Return the powers of two between the smallest normal and the largest number of an input's dtype."""
    information = torch.finfo(getattr(torch, item["dtype"]))
    return math.frexp(float(information.smallest_normal))[1] - 1, math.frexp(float(information.max))[1] - 1


def rank(item: ResolvedInput) -> int:
    """Return the number of axes of an input, at least 1."""
    return max(1, len(item["shape"] or []))


def drawn_range(item: ResolvedInput, rng: random.Random) -> dict[str, int]:
    """Return exponents `low` and `high` at random within a dtype: often moderate, at times all that it has."""
    least, most = exponents(item)
    half = rng.choice((4, 8, 12, 20, 40, 200))
    return {"low": max(least, -half), "high": min(most, half)}


def number(value: float) -> str:
    """Return a number as a reader writes it."""
    return f"{value:g}"
