"""The backend `warpsmith` of torch.compile: rewrites each graph that Dynamo captures, and has Inductor compile it.

`torch.compile(model, backend="warpsmith", mode=..., options=...)`: modes and options are Inductor's. What is rewritten
is a graph of Dynamo's, whose guards hold for it as they hold for Inductor's own; Inductor's cache sees the result.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import fx

from warpsmith.workers.optimize.compiled.masks import Place, take_out_masks


@dataclass(frozen=True)
class Graph:
    """A graph that was compiled: its calls before rewriting, and its places of attention with a mask."""

    calls: int
    masks: tuple[Place, ...]


def warpsmith(
    graph: fx.GraphModule,
    inputs: Sequence[Any],
    *,
    mode: str | None = None,
    options: dict[str, Any] | None = None,
    seen: Callable[[Graph], None] | None = None,
) -> Callable[..., Any]:
    """Rewrite a graph of Dynamo's and compile it with Inductor, under its `mode` and `options`.

    `seen` is told what became of the graph. Raises what Inductor raises, RuntimeError for a mode that it does not know.
    """
    from torch._inductor.compile_fx import compile_fx  # noqa: PLC0415 - seconds, where nothing is compiled

    calls = sum(node.op.startswith("call_") for node in graph.graph.nodes)
    masks = take_out_masks(graph)
    if seen is not None:
        seen(Graph(calls, tuple(masks)))
    patches = {**(torch._inductor.list_mode_options(mode) if mode else {}), **(options or {})}
    return cast("Callable[..., Any]", compile_fx(graph, inputs, config_patches=patches or None))
