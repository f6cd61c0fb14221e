"""A backend of torch.compile: rewrites each graph that Dynamo captures, and has Inductor compile it.

What is rewritten is a graph of Dynamo's, whose guards hold for it as they hold for Inductor's own; Inductor's cache
sees the result.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import fx

from . import inductor
from .groups import share_heads
from .masks import Place, take_out_masks
from .rewriting import Keep, Placed, compile_with, dropped
from .seams import Gain
from .served import Served
from .trial import Trial


@dataclass(frozen=True)
class Graph:
    """A graph that was compiled: its calls before rewriting, and what became of it.

    masks: its places of attention with a mask; kernels: its places of kernels; without: the kernels that have none,
    with the reason; why: the reason where no kernel was looked for; trial: of the graph with its kernels beside that
    without, where one is made; gain: what they gain in it, where that is sure without a trial; shared: its calls of
    attention that take heads as they are, in place of heads repeated for groups of queries; broken: why Dynamo ended it
    before the model's end, where it did.
    """

    calls: int
    masks: tuple[Place, ...]
    kernels: tuple[Placed, ...] = ()
    without: dict[str, str] = field(default_factory=dict)
    why: str = ""
    trial: Trial | None = None
    gain: Gain | None = None
    shared: tuple[str, ...] = ()
    broken: str = ""

    @property
    def places(self) -> tuple[Placed, ...]:
        """The places of kernels as they are now: a trial may have dropped what was taken."""
        outcome = None if self.trial is None else self.trial.outcome
        if outcome is None or outcome.gains:
            return self.kernels
        return tuple(dropped(place, outcome) for place in self.kernels)


NOWHERE = "the graph does not compute this op"
Serve = Callable[[Sequence[torch.Tensor]], Sequence[Served]]
"""Returns the kernels for a graph, by the tensors that it is given."""


def compile_rewritten(
    graph: fx.GraphModule,
    inputs: Sequence[Any],
    *,
    serve: Serve,
    keep: Keep = "faster",
    tried: bool = True,
    mode: str | None = None,
    options: dict[str, Any] | None = None,
    seen: Callable[[Graph], None] | None = None,
) -> Callable[..., Any]:
    """Rewrite a graph of Dynamo's and compile it with Inductor, under its `mode` and `options`.

    keep: which kernels stay (`Keep`); tried: and only where the graph as a whole is faster, too (`Gain`, `Trial`).
    `seen` is told what became of the graph. Raises what Inductor raises, RuntimeError for a mode that it does not know.
    """
    broken = inductor.break_of(graph)
    calls = sum(node.op.startswith("call_") for node in graph.graph.nodes)
    patches = inductor.patches_of(mode, options)
    masks = tuple(take_out_masks(graph))
    tensors = [value for value in inputs if isinstance(value, torch.Tensor)]
    if torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors):
        compiled = inductor.compile_graph(graph, inputs, patches)
        found = Graph(calls, masks, (), why="gradients are needed, for which no kernel was searched", broken=broken)
    else:
        shared = tuple(share_heads(graph))
        with inductor.phase("kernels"):
            given = {kernel.name: kernel for kernel in serve(tensors)}
        without = {name: why for name, kernel in given.items() if (why := kernel.kernel.off()) is not None}
        serving = [kernel for name, kernel in given.items() if name not in without]
        rewritten = compile_with(serving, graph, inputs, patches, keep, tried=tried)
        compiled, placed = rewritten.code, tuple(rewritten.placed)
        seen_at = {place.kernel for place in placed}
        without |= {each.name: NOWHERE for each in serving if each.name not in seen_at}
        found = Graph(calls, masks, placed, without, "", rewritten.trial, rewritten.gain, shared, broken)
    if seen is not None:
        seen(found)
    return compiled
