"""The backend `warpsmith` of torch.compile: rewrites each graph that Dynamo captures, and has Inductor compile it.

`torch.compile(model, backend="warpsmith", mode=..., options=...)`: modes and options are Inductor's. What is rewritten
is a graph of Dynamo's, whose guards hold for it as they hold for Inductor's own; Inductor's cache sees the result.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx

from warpsmith.workers.optimize.compiled import inductor, kernels
from warpsmith.workers.optimize.compiled.masks import Place, take_out_masks
from warpsmith.workers.optimize.compiled.rewriting import Keep, Placed, compile_with


@dataclass(frozen=True)
class Graph:
    """A graph that was compiled: its calls before rewriting, and what became of it.

    masks: its places of attention with a mask; kernels: its places of kernels, None where Inductor's cache had the code
    and what became of them is not known; why: the reason where no kernel was looked for.
    """

    calls: int
    masks: tuple[Place, ...]
    kernels: tuple[Placed, ...] | None = ()
    why: str = ""


def warpsmith(
    graph: fx.GraphModule,
    inputs: Sequence[Any],
    *,
    mode: str | None = None,
    options: dict[str, Any] | None = None,
    served: Sequence[kernels.Served] | None = None,
    keep: Keep = "faster",
    seen: Callable[[Graph], None] | None = None,
) -> Callable[..., Any]:
    """Rewrite a graph of Dynamo's and compile it with Inductor, under its `mode` and `options`.

    served: the kernels; None: those that ship, for the device of the graph. keep: which of them stay (`Keep`).
    `seen` is told what became of the graph.
    Raises what Inductor raises, RuntimeError for a mode that it does not know.
    """
    calls = sum(node.op.startswith("call_") for node in graph.graph.nodes)
    patches = inductor.patches_of(mode, options)
    masks = tuple(take_out_masks(graph))
    tensors = [value for value in inputs if isinstance(value, torch.Tensor)]
    if torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors):
        compiled = inductor.compile_graph(graph, inputs, patches)
        found = Graph(calls, masks, (), "gradients are needed, for which no kernel was searched")
    else:
        chosen = kernels.shipped_for(tensors) if served is None else served
        compiled, placed = compile_with(chosen, graph, inputs, patches, keep)
        found = Graph(calls, masks, None if placed is None else tuple(placed))
    if seen is not None:
        seen(found)
    return compiled
