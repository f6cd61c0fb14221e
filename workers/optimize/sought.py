"""An op that a spec declares, as `warpsmith.optimize` will look for it once there is a kernel: the same pattern.

What `Served` takes from an exported package is taken from the op itself. A test holds the two together.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, cast

import torch
from torch import fx
from torch.fx import Node

from warpsmith.kernels_db.job.documents import ResolvedWorkload
from warpsmith.kernels_db.spec.op import Op, Target
from warpsmith.kernels_db.spec.resolve import resolve_workload
from warpsmith.kernels_db.spec.tensors import VarAxis
from warpsmith.workers.optimize.compiled import inductor, places
from warpsmith.workers.optimize.compiled.match import Pattern, is_view
from warpsmith.workers.optimize.compiled.patterns import Lead
from warpsmith.workers.optimize.compiled.served import Number, Rows, Served, Shapes


class Sought(Rows):
    """An op without a kernel. Its inputs are tensors alone, as those that `profile` writes are."""

    def __init__(self, op: Op, run: Callable[..., Any], target: Target) -> None:
        self.op = self.name = op.name
        self.devices = (target.device,)
        self.mutated: tuple[int, ...] = ()  # what a profile proposes writes to nothing
        self._run = run
        varies = {name for name, axis in op.axes.items() if isinstance(axis, VarAxis)}
        super().__init__([each.shape or () for each in op.inputs], varies)
        self._workloads = [resolve_workload(op, each) for each in op.workloads_for(target)]

    def axes(self, tensors: Sequence[torch.Tensor], numbers: Sequence[Number] = ()) -> dict[str, int] | str:
        """Return the axes of a call with flat tensors, or what does not fit."""
        found: dict[str, int] = {}
        for tensor, shape in zip(tensors, self._shapes, strict=True):
            if tensor.dim() != len(shape):
                return f"{tensor.dim()} axes, expected {len(shape)}"
            for size, axis in zip(tensor.shape, shape, strict=True):
                expected = found.setdefault(axis, int(size)) if isinstance(axis, str) else axis
                if size != expected:
                    return f"{size}, expected {expected}"
        return found

    @functools.cache  # noqa: B019 - as long as the op is looked for
    def pattern(
        self,
        lead: Lead,
        device: torch.device,
        shapes: Shapes | None = None,
        integers: Sequence[int] | None = None,
    ) -> Pattern | None:
        """Return the reference's graph for a lead, as `Served` does."""
        sizes = [_shape(self._traced[0], position) for position in range(len(self._shapes))]
        behind = shapes or tuple(shape[1:] if self.rows(at) else shape for at, (shape, _) in enumerate(sizes))
        tensors = [
            torch.empty((*lead, *shape) if self.rows(at) else shape, dtype=sizes[at][1], device=device)
            for at, shape in enumerate(behind)
        ]
        try:
            return Pattern.of(inductor.operators(self._run, tensors))
        except Exception:  # noqa: BLE001 - a reference need not take this rank, and may raise anything
            return None

    def places(self, graph: fx.Graph) -> list[frozenset[Node]]:
        """Return the nodes of each place that `warpsmith.optimize` would find in a graph, without views."""
        found = places.find(graph, [cast("Served", self)]).regions
        nodes = [frozenset(node for node in one.match.nodes if not is_view(node)) for one in found]
        return list(dict.fromkeys(nodes))

    @functools.cached_property
    def others(self) -> Sequence[tuple[Shapes, Sequence[int]]]:
        """See `Rows`."""
        return [(self.behind_leading(_shapes(each)), ()) for each in self._traced[1:]]

    @functools.cached_property
    def _traced(self) -> list[ResolvedWorkload]:
        return [self._workloads[at] for at in self.to_trace([_shapes(each) for each in self._workloads])]


def _shapes(workload: ResolvedWorkload) -> list[tuple[int, ...]]:
    return [tuple(item["shape"] or ()) for item in workload["inputs"]]


def _shape(workload: ResolvedWorkload, position: int) -> tuple[tuple[int, ...], torch.dtype]:
    item = workload["inputs"][position]
    return tuple(item["shape"] or ()), getattr(torch, item["dtype"])
