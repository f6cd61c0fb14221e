"""An exemplar as a value: requests are read where there is no database. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Exemplar:
    """A verified kernel that surely beat every baseline, and the idea that it won by.

    op, description: of its op. speedup, low, high: over the fastest baseline, with the 95 % interval. share: of the
    physical limit, None where it is not known. idea: of its lineage, by `last_idea`. shared: the features that both ops
    have.
    """

    kernel_id: str
    op: str
    description: str
    target: str
    source: str
    speedup: float
    low: float
    high: float
    share: float | None
    idea: Mapping[str, Any]
    shared: tuple[str, ...]
