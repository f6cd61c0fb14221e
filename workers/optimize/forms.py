"""The ways in which a region's sizes can vary: which leading sizes of its tensors become one axis of the op.

A graph has the sizes of one call. An op that varies is worth more than one that does not, so what might vary is tried,
and kept where the reference that comes of it computes the same and is found in the model again.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch.fx import Node

from warpsmith.workers.optimize.operators import tensor, weight
from warpsmith.workers.optimize.regions import Region

ROWS, BATCH = "rows", "batch"


@dataclass(frozen=True)
class Form:
    """One way of writing a region. `axis`: the name of the axis that varies, None where nothing does; `lead`: the
    leading sizes, in the graph, that are this axis; `literal`: each operator is written as it is in the graph.
    """

    axis: str | None
    lead: tuple[int, ...]
    literal: bool

    @property
    def rows(self) -> int:
        """The size of the axis in the graph."""
        return math.prod(self.lead)

    def leads(self, node: Node) -> int:
        """Return how many of a tensor's leading sizes are the axis; 0 for a weight and for what has other sizes."""
        value = tensor(node)
        if self.axis is None or value is None or weight(node) is not None:
            return 0
        return self.of(value.shape)

    def of(self, shape: Sequence[int]) -> int:
        """Return how many leading sizes of a shape are the axis."""
        if tuple(shape[: len(self.lead)]) == self.lead:
            return len(self.lead)
        return 1 if len(self.lead) > 1 and shape and shape[0] == self.rows else 0

    def shape(self, node: Node) -> list[str | int]:
        """Return a tensor's shape as the op has it."""
        value = tensor(node)
        assert value is not None
        leads = self.leads(node)
        rest: list[str | int] = [int(size) for size in value.shape[leads:]]
        return [self.axis, *rest] if leads and self.axis is not None else rest

    def given(self, node: Node, value: torch.Tensor) -> torch.Tensor:
        """Return a tensor of the model as the op takes or gives it."""
        leads = self.leads(node)
        return value.reshape(-1, *value.shape[leads:]) if leads > 1 else value


def forms(region: Region) -> Iterator[Form]:
    """Yield the ways of writing a region, the best first; the last one is for its own sizes alone, as they are."""
    first = tensor(region.inputs[0])
    assert first is not None
    shape = tuple(int(size) for size in first.shape)
    wanted: list[tuple[str, int]] = []
    if weight(region.inputs[0]) is None:
        rows = len(shape) - 1 if first.is_floating_point() else len(shape)  # an index is a row by itself
        wanted = [(ROWS, rows), (BATCH, 1)]
    tried: set[int] = set()
    for axis, leads in wanted:
        lead = shape[:leads]
        if leads < 1 or leads in tried or (axis == BATCH and lead[0] == 1):
            continue
        tried.add(leads)
        for literal in (False, True):
            yield Form(axis, lead, literal)
    for literal in (False, True):
        yield Form(None, (), literal)
