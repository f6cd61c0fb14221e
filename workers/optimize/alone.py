"""Measure what a region takes under Inductor: as code of its own, on the tensors that it had in the model.

On a GPU in a CUDA graph that goes through as many copies of its inputs as the cache does not hold, as `choice` times a
kernel in its place.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence

import torch

from warpsmith.workers.optimize.compiled import inductor
from warpsmith.workers.optimize.compiled.choice import past_cache, through
from warpsmith.workers.optimize.compiled.places import cut_out
from warpsmith.workers.optimize.compiled.turns import time_in_turns
from warpsmith.workers.optimize.regions import Region

TIME_S = 0.2
"""Seconds of timing of a region, at most."""


def time_us(region: Region, given: Sequence[torch.Tensor]) -> float:
    """Return the microseconds of a call of the region's code. given: its inputs, laid out as in the model."""
    inputs = list(given)
    device = inputs[0].device
    with inductor.outside():
        region_alone = cut_out(region.inputs, region.nodes, region.outputs)
        compiled = inductor.compile_graph(region_alone, inputs, {})
        copies = past_cache(inputs)
        call = through(copies, lambda each: compiled(*each))
        return statistics.median(time_in_turns({"inductor": lambda: call}, device, TIME_S)["inductor"]) / len(copies)
