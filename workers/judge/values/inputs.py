"""Input values, drawn by the referee from secret seeds. The seed never enters a runner.

Every call gets values that were never there before; `fresh_inputs` says how for each kind. The generator is seeded
anew for every call, by a hash of the source's seed: who finds out the seed of one call's values, which for a CPU's
generator has 32 bits, knows nothing of the next ones.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable, Sequence
from typing import Any

import torch

from warpsmith.kernels_db.job import draws
from warpsmith.kernels_db.job.documents import ResolvedInput
from warpsmith.kernels_db.job.memory import STOCK
from warpsmith.workers.judge.machine.buffers import ALIGNMENT, TensorSpec, contiguous_strides
from warpsmith.workers.judge.values import fresh_inputs
from warpsmith.workers.judge.values.families import Family, changed

Make = Callable[[str, TensorSpec, int], torch.Tensor]
"""A function that runs the user's generator (source, tensor, seed) in a runner.

It returns the generator's tensor, on the CPU.
"""

CPU = torch.device("cpu")


def input_spec(item: ResolvedInput) -> TensorSpec:
    """Return the buffer spec that an input of a job needs."""
    dtype = getattr(torch, item["dtype"])
    if item["shape"] is None:
        return TensorSpec(item["name"], None, (), dtype, item["value"])
    shape = tuple(item["shape"])
    strides = contiguous_strides(shape) if item["strides"] is None else tuple(item["strides"])
    alignment = item.get("alignment", ALIGNMENT)
    return TensorSpec(item["name"], shape, strides, dtype, alignment=alignment, mutated=item["mutated"])


class BadDistribution(ValueError):  # noqa: N818 - named for what it is
    """An input's distribution cannot be drawn. `field` names the input."""

    def __init__(self, name: str, dist: dict[str, Any], why: Exception) -> None:
        super().__init__(f"inputs.{name}.dist: found {dist}, expected a distribution that can be drawn ({why})")
        self.field = f"inputs.{name}.dist"
        self.dist = dist


class InputSource:
    """Values for all inputs of one workload under one seed."""

    def __init__(
        self,
        inputs: Sequence[ResolvedInput],
        seed: int,
        make: Make,
        device: torch.device = CPU,
        family: Family | None = None,
        *,
        at_once: bool = True,
    ) -> None:
        """Draw the constants, and `at_once` the stocks, on `device`; `family` changes the values that `draw` gives.

        Without `at_once` a stock is drawn once as many numbers were drawn without it: a source of a few calls needs
        none. The first values of a seed are others then. Raises BadDistribution.
        """
        self._inputs = inputs
        self._family = family
        self._make = make
        self._seed = seed
        self._draws = 0
        self._generator = torch.Generator(device)
        self._choose = self._reseed()
        self._kept: list[torch.Tensor | None] = []  # the stock of an input, or the constant that it is
        self._specs = [input_spec(item) for item in inputs]
        for item, spec in zip(inputs, self._specs, strict=True):
            try:
                self._kept.append(None if spec.shape is None else _kept(item["dist"], spec, self._generator, at_once))
            except (KeyError, TypeError, ValueError, RuntimeError) as error:  # RuntimeError: torch refuses the values
                raise BadDistribution(item["name"], item["dist"], error) from error

    def _reseed(self) -> random.Random:
        """Seed the generator for the next values, and return what chooses places and angles for them."""
        self._draws += 1
        digest = hashlib.sha256(f"{self._seed} {self._draws}".encode()).digest()
        self._generator.manual_seed(int.from_bytes(digest[:8], "little") >> 1)
        return random.Random(digest[8:])  # noqa: S311 - unpredictable to runners because the seed is

    def draw(self) -> list[torch.Tensor | None]:
        """Return new values for one call, in the declared shapes and dtypes; None for scalars.

        Constants are the same tensor every time: do not write. Raises whatever `make` raises where the user's generator
        fails.
        """
        self._choose = self._reseed()
        values: list[torch.Tensor | None] = [
            None if spec.shape is None else self._new(place, item["dist"], spec)
            for place, (item, spec) in enumerate(zip(self._inputs, self._specs, strict=True))
        ]
        if self._family is not None:
            values = changed(self._family, self._inputs, values, self._generator, self._choose)
        return [
            None if value is None else broadcast(value, spec) for value, spec in zip(values, self._specs, strict=True)
        ]

    def draw_one(self, place: int) -> torch.Tensor | None:
        """Return new values for one input, as `draw` does; None for a scalar, and where a family changes the values."""
        item, spec = self._inputs[place], self._specs[place]
        if spec.shape is None or self._family is not None:
            return None
        self._choose = self._reseed()
        return broadcast(self._new(place, item["dist"], spec), spec)

    def _new(self, place: int, dist: dict[str, Any], spec: TensorSpec) -> torch.Tensor:
        """Return one input's values for one call."""
        if dist["kind"] == "code":
            return self._make(dist["source"], spec, self._choose.getrandbits(62)).to(self._generator.device)
        kept = self._kept[place]
        many = self._draws * spec.elements > STOCK
        if kept is None and many and fresh_inputs.is_mixed(dist, spec, self._generator.device):
            kept = self._kept[place] = fresh_inputs.stock(dist, spec, self._generator)
        if kept is None:
            return fresh_inputs.drawn(dist, spec, self._generator)
        return kept if dist["kind"] == "constant" else fresh_inputs.mixed(dist, kept, spec, self._choose)


class InputSources:
    """Makes input sources, each under a new secret seed."""

    def __init__(self, rng: random.Random, make: Make, device: torch.device = CPU) -> None:
        """`rng` draws the seeds."""
        self._rng = rng
        self._make = make
        self._device = device

    def of(self, inputs: Sequence[ResolvedInput], family: Family | None = None) -> InputSource:
        """Return values of a workload's inputs under a new seed. Raises what InputSource does."""
        return InputSource(inputs, self._rng.getrandbits(62), self._make, self._device, family, at_once=False)

    def seeded(self, inputs: Sequence[ResolvedInput], seed: int) -> InputSource:
        """Return values of a workload's inputs under a seed that is known. Raises what InputSource does."""
        return InputSource(inputs, seed, self._make, self._device)


def broadcast(value: torch.Tensor, spec: TensorSpec) -> torch.Tensor:
    """Return a value as a buffer with these strides holds it: size 1 on axes of stride 0."""
    for axis, stride in enumerate(spec.strides):
        if stride == 0 and value.shape[axis] > 1:
            value = value.narrow(axis, 0, 1).expand(value.shape)
    return value


def _kept(dist: dict[str, Any], spec: TensorSpec, generator: torch.Generator, at_once: bool) -> torch.Tensor | None:
    """Return what an input's values are made from; None where they are drawn, after a trial of a few elements."""
    assert spec.shape is not None
    if dist["kind"] == "code":
        return None
    if dist["kind"] == "constant":
        return draws.draw(dist, spec.shape, spec.dtype, generator)
    draws.draw(dist, tuple(min(size, 2) for size in spec.shape), spec.dtype, generator)
    mixes = at_once and fresh_inputs.is_mixed(dist, spec, generator.device)
    return fresh_inputs.stock(dist, spec, generator) if mixes else None
