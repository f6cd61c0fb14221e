"""Measure what a region takes under Inductor: as code of its own, on the tensors that it had in the model.

On a GPU in a CUDA graph that goes through as many copies of its inputs as the cache does not hold, as `choice` times a
kernel in its place.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

import torch
from torch import fx

from warpsmith.workers.optimize.compiled import inductor
from warpsmith.workers.optimize.compiled.choice import MOST_COPIES, PAST_CACHE_BYTES, graphed, laid_out
from warpsmith.workers.optimize.compiled.turns import time_in_turns
from warpsmith.workers.optimize.regions import Region

TIME_S = 0.2
"""Seconds of timing of a region, at most."""


def time_us(region: Region, given: Sequence[torch.Tensor]) -> float:
    """Return the microseconds of a call of the region's code. given: its inputs, laid out as in the model."""
    inputs = list(given)
    device = inputs[0].device
    with inductor.outside():
        compiled = inductor.compile_graph(_alone(region), inputs, {})
        copies = [inputs]
        if device.type == "cuda":
            size = max(1, sum(tensor.numel() * tensor.element_size() for tensor in inputs))
            more = min(MOST_COPIES, math.ceil(PAST_CACHE_BYTES / size)) - 1
            copies += [[laid_out(tensor, tensor) for tensor in inputs] for _ in range(more)]

        def all_copies() -> None:
            for each in copies:
                compiled(*each)

        call = graphed(all_copies) if device.type == "cuda" else all_copies
        return statistics.median(time_in_turns({"inductor": lambda: call}, device, TIME_S)["inductor"]) / len(copies)


def _alone(region: Region) -> fx.GraphModule:
    """Return the region as a graph of its own: its inputs in order, and a tuple of its results."""
    graph = fx.Graph()
    inside = {node: graph.placeholder(f"given_{number}") for number, node in enumerate(region.inputs)}
    for node in region.nodes:
        inside[node] = graph.node_copy(node, inside.__getitem__)
    graph.output(tuple(inside[node] for node in region.outputs))
    return fx.GraphModule(torch.nn.Module(), graph)
