"""Measure what a region takes under Inductor: as code of its own, on the tensors that it had in the model.

On a GPU in a CUDA graph that goes through as many copies of its inputs as the cache does not hold, as `choice` times a
kernel in its place.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from warpsmith.workers.optimize.compiled import inductor
from warpsmith.workers.optimize.compiled.choice import past_cache, through
from warpsmith.workers.optimize.compiled.places import cut_out
from warpsmith.workers.optimize.compiled.turns import time_in_turns
from warpsmith.workers.optimize.regions import Region

TIME_S = 0.2
"""Seconds of a burst of timing, at most."""


def ready(region: Region, given: Sequence[torch.Tensor]) -> Callable[[], float]:
    """Compile a region; returns what times it in a burst: microseconds of a call, in the shortest round.

    given: its inputs, laid out as in the model. Others on the host only make rounds longer.
    """
    inputs = list(given)
    device = inputs[0].device
    with inductor.outside():
        region_alone = cut_out(region.inputs, region.nodes, region.outputs)
        compiled = inductor.compile_graph(region_alone, inputs, {})
        copies = past_cache(inputs)
        call = through(copies, lambda each: compiled(*each))

    def burst() -> float:
        with inductor.outside():
            return min(time_in_turns({"inductor": lambda: call}, device, TIME_S)["inductor"]) / len(copies)

    return burst
