"""Kernels into a graph while Inductor compiles it: regions are found, those that pay are replaced.

Inductor compiles a graph in one go, and its pass is no place to compile and to time other graphs. So where a region is
met of which nothing is known, the compilation is given up, the region is looked at, and the graph compiled again.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx

from warpsmith.workers.optimize.applied import match
from warpsmith.workers.optimize.compiled import inductor
from warpsmith.workers.optimize.compiled.choice import Choices, Decision
from warpsmith.workers.optimize.compiled.kernels import Served
from warpsmith.workers.optimize.compiled.places import Region, put, regions


@dataclass(frozen=True)
class Placed:
    """A region of a graph and what became of it: `why` is empty where the kernel stands there."""

    op: str
    kernel: str
    where: str
    shapes: str
    decision: Decision
    why: str


class _Unknown(Exception):  # noqa: N818 - named for what happens
    """The graph has regions of which nothing is known."""


def compile_with(
    kernels: Sequence[Served], graph: fx.GraphModule, inputs: Sequence[Any], patches: inductor.Patches
) -> tuple[inductor.Compiled, list[Placed] | None]:
    """Compile a graph of Dynamo's with kernels where they pay; returns the code and what became of each region.

    None for the regions: Inductor had the code in its cache, with the kernels that it was compiled with.
    """
    rewriter = _Rewriter(kernels, Choices(_device(inputs), patches))
    identity = hashlib.sha256(repr(sorted(kernel.name for kernel in kernels)).encode()).hexdigest()
    patched = inductor.with_pass(patches, rewriter, identity)
    for _ in range(2):
        try:
            return inductor.compile_graph(inductor.copied(graph), inputs, patched), rewriter.placed
        except Exception:  # Inductor wraps what a pass raises
            if not rewriter.unknown:
                raise
        rewriter.learn()
    raise AssertionError("a region was unknown after all were looked at")


def _device(inputs: Sequence[Any]) -> torch.device:
    devices = {value.device for value in inputs if isinstance(value, torch.Tensor)} - {torch.device("cpu")}
    return next(iter(devices), torch.device("cpu"))


class _Rewriter:
    """The pass. `unknown` are the regions of which nothing is known; `placed` is None before a graph was rewritten."""

    def __init__(self, kernels: Sequence[Served], choices: Choices) -> None:
        self._kernels, self._choices = kernels, choices
        self.unknown: list[Region] = []
        self.placed: list[Placed] | None = None

    def learn(self) -> None:
        """Look at the unknown regions."""
        self._choices.decide(self.unknown)
        self.unknown = []

    def __call__(self, graph: fx.Graph) -> None:
        """Rewrite a graph. Raises _Unknown."""
        found = list(regions(graph, self._kernels))
        self.unknown = [region for region in found if self._choices.known(region) is None]
        if self.unknown:
            raise _Unknown
        decided = [(region, decision) for region in found if (decision := self._choices.known(region)) is not None]
        chosen, placed = _choose(decided)
        put(graph, chosen)
        self.placed = (self.placed or []) + placed


def _choose(decided: Sequence[tuple[Region, Decision]]) -> tuple[list[Region], list[Placed]]:
    """Choose the regions that save most and share nothing; returns them, and what became of all."""
    used: set[fx.Node] = set()
    chosen, placed = [], []
    for region, decision in sorted(decided, key=lambda each: -each[1].saved_us):
        nodes = {node for node in region.match.nodes if not match.is_view(node)}
        why = decision.why or ("a kernel that saves more stands there" if nodes & used else "")
        if not why:
            used |= nodes
            chosen.append(region)
        kernel = region.kernel
        placed.append(Placed(kernel.op, kernel.name, region.where, region.shapes, decision, why))
    return chosen, placed
