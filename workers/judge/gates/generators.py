"""The spec's own generators of a job: warm runners, so that every call's values can be made anew.

Each is stopped except while it makes values: none of it runs while the clock does.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

from warpsmith.workers.judge.machine.buffers import TensorSpec
from warpsmith.workers.judge.reference.learning import ReferenceFault
from warpsmith.workers.judge.runner.faults import RunnerFault
from warpsmith.workers.judge.runner.runner_handle import RunnerHandle


class Generators:
    """Makes the values of inputs that a spec's own code draws. Close it to end the runners."""

    def __init__(self, start: Callable[[str], RunnerHandle], call_s: float) -> None:
        """`start` starts a runner with a generator's source."""
        self._start = start
        self._call_s = call_s
        self._runners: dict[tuple[str, str], tuple[TensorSpec, RunnerHandle]] = {}  # by source and input

    def make(self, source: str, spec: TensorSpec, seed: int) -> torch.Tensor:
        """Run a generator under a seed and return the tensor of one input.

        Raises ReferenceFault where the generator is at fault.
        """
        key = (source, spec.name)
        try:
            bound, handle = self._runners.get(key) or (None, self._start(source))
            if bound is None:
                handle.held = True
            if bound != spec:
                self._runners[key] = (spec, handle)
                handle.bind([], [spec], 1)
            return handle.generate(seed, self._call_s)
        except RunnerFault as fault:
            if (failed := self._runners.pop(key, None)) is not None:
                failed[1].close()
            if fault.external:
                raise
            message = f"the generator of input {spec.name}: {fault}"
            raise ReferenceFault(fault.kind, message, "", **fault.details) from fault

    def close(self) -> None:
        """End the runners."""
        while self._runners:
            self._runners.popitem()[1][1].close()
