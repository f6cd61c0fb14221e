"""Input values, drawn by the referee from secret seeds. The seed never enters a runner.

Independent elements (normal, uniform, randint, bernoulli) are drawn once into a stock somewhat larger than the tensor,
structured values (permutation, indptr, spd) and the user's own code as a few whole tensors; each call gets new numbers
made from these (`fresh_inputs`) at the price of a copy or two.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

import torch

from warpsmith.kernels_db.job import draws
from warpsmith.kernels_db.job.documents import ResolvedInput
from warpsmith.workers.judge.machine.buffers import ALIGNMENT, TensorSpec, contiguous_strides
from warpsmith.workers.judge.values import fresh_inputs
from warpsmith.workers.judge.values.families import Family, changed

SLACK = 1 << 14
"""Elements of a stock beyond the tensor's own: so many different windows there are."""

STRUCTURED_VARIANTS = 4

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
    return TensorSpec(item["name"], shape, strides, dtype, alignment=item.get("alignment", ALIGNMENT))


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
    ) -> None:
        """Draw the stocks, on `device`; `family` changes the values that they give.

        Raises BadDistribution, and whatever `make` raises where the user's generator fails.
        """
        self._inputs = inputs
        self._family = family
        self._choose = random.Random(seed ^ 0x5EED)  # noqa: S311 - unpredictable to runners because the seed is
        generator = self._generator = torch.Generator(device).manual_seed(seed)
        self._stocks: list[list[torch.Tensor] | None] = []
        self._specs = [input_spec(item) for item in inputs]
        for item, spec in zip(inputs, self._specs, strict=True):
            try:
                self._stocks.append(None if spec.shape is None else _stock(item["dist"], spec, generator, make))
            except (KeyError, TypeError, ValueError, RuntimeError) as error:  # RuntimeError: torch refuses the values
                raise BadDistribution(item["name"], item["dist"], error) from error

    def draw(self) -> list[torch.Tensor | None]:
        """Return new values for one call, in the declared shapes and dtypes; None for scalars.

        They are views of the stock: do not write.
        """
        values: list[torch.Tensor | None] = []
        for item, spec, stock in zip(self._inputs, self._specs, self._stocks, strict=True):
            if stock is None:
                values.append(None)
                continue
            assert spec.shape is not None
            if item["dist"]["kind"] in draws.INDEPENDENT:
                flat = fresh_inputs.independent(item["dist"], stock[0], spec.elements, self._choose)
                values.append(flat.view(spec.shape))
            else:
                values.append(fresh_inputs.structured(item["dist"], stock, self._generator, self._choose))
        if self._family is not None:
            values = changed(self._family, self._inputs, values, self._generator, self._choose)
        return [
            None if value is None else _broadcast(value, spec) for value, spec in zip(values, self._specs, strict=True)
        ]


class InputSources:
    """Makes input sources, each under a new secret seed."""

    def __init__(self, rng: random.Random, make: Make, device: torch.device = CPU) -> None:
        """`rng` draws the seeds."""
        self._rng = rng
        self._make = make
        self._device = device

    def of(self, inputs: Sequence[ResolvedInput], family: Family | None = None) -> InputSource:
        """Return values of a workload's inputs under a new seed. Raises what InputSource does."""
        return InputSource(inputs, self._rng.getrandbits(62), self._make, self._device, family)


def _broadcast(value: torch.Tensor, spec: TensorSpec) -> torch.Tensor:
    """Return the value as a buffer with these strides holds it: size 1 on axes of stride 0."""
    for axis, stride in enumerate(spec.strides):
        if stride == 0 and value.shape[axis] > 1:
            value = value.narrow(axis, 0, 1).expand(value.shape)
    return value


def stock_bytes(item: ResolvedInput) -> int:
    """Return the bytes that an InputSource holds for one input."""
    spec = input_spec(item)
    variants = 1 if item["dist"].get("kind") in draws.INDEPENDENT else STRUCTURED_VARIANTS
    return variants * (spec.elements + SLACK) * spec.dtype.itemsize


def _stock(dist: dict[str, Any], spec: TensorSpec, generator: torch.Generator, make: Make) -> list[torch.Tensor]:
    assert spec.shape is not None
    kind = dist["kind"]
    if kind in draws.INDEPENDENT:
        return [draws.draw(dist, (spec.elements + SLACK,), spec.dtype, generator)]
    if kind == "code":
        device = generator.device
        seeds = torch.randint(0, 2**62, (STRUCTURED_VARIANTS,), generator=generator, device=device).tolist()
        return [make(dist["source"], spec, seed).to(device) for seed in seeds]
    variants = 1 if kind == "constant" else STRUCTURED_VARIANTS
    return [draws.draw(dist, spec.shape, spec.dtype, generator) for _ in range(variants)]
