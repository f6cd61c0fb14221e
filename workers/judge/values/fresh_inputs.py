"""Values that no process was given before: made anew for every call, at a price that a call can bear.

A candidate's memory may outlive a call, so values that come again (or the same ones at another place, turned, or
permuted) are answered from what it remembers. What is new about each kind:

- normal and uniform, floating: drawn. On a CPU beyond DRAWN_ANEW elements each BLOCK of them is mixed from two random
  places of a stock: normal ones at a random angle, uniform ones added, with a random number, modulo their range.
- randint, bernoulli, whatever their type: drawn.
- permutation, indptr, ends: drawn.
- spd: drawn, so with other eigenvalues, which rows exchanged or signs flipped would leave as they were.
- code: the spec's own code runs again under another seed (`inputs`).
- constant: itself. It holds nothing that could be remembered.

To find out from a mixed block which places and which angle made it takes longer than to compute with its BLOCK numbers,
and tells nothing about the next block. No hash of a whole input, of its beginning, of some elements, of what is in it
once sorted, and no sum comes twice. An op with few values (a mask of three elements) meets them again by chance.
"""

from __future__ import annotations

import math
import random
from typing import Any

import torch

from warpsmith.kernels_db.job import draws, memory
from warpsmith.kernels_db.job.memory import BLOCK, CHUNK, DRAWN_ANEW, STOCK
from warpsmith.workers.judge.machine.buffers import TensorSpec


def is_mixed(dist: dict[str, Any], spec: TensorSpec, device: torch.device) -> bool:
    """Check whether an input's values are mixed from a stock."""
    floating = spec.dtype.is_floating_point
    return memory.is_mixed(dist["kind"], floating, spec.elements, "cuda" if device.type == "cuda" else "cpu")


def stock(dist: dict[str, Any], spec: TensorSpec, generator: torch.Generator) -> torch.Tensor:
    """Draw the stock from which an input's values are mixed: normal numbers, or uniform ones in [0, range).

    They are float32 (float64 for float64), so that a call's values are rounded to narrower types once.
    """
    wide = torch.float64 if spec.dtype == torch.float64 else torch.float32
    span = dist.get("high", 1.0) - dist.get("low", 0.0)
    centred = dist | ({"mean": 0.0} if dist["kind"] == "normal" else {"low": 0.0, "high": span})
    return draws.draw(centred, (STOCK + BLOCK,), wide, generator)


def mixed(dist: dict[str, Any], from_stock: torch.Tensor, spec: TensorSpec, choose: random.Random) -> torch.Tensor:
    """Return an input's values for one call, each block of them mixed from two places of the stock."""
    assert spec.shape is not None
    values = torch.empty(spec.elements, dtype=spec.dtype)
    mix = _mix_normal if dist["kind"] == "normal" else _mix_uniform
    for start in range(0, spec.elements, BLOCK):
        size = min(BLOCK, spec.elements - start)
        one, other = choose.sample(range(STOCK), 2)
        block = values[start : start + size]
        made = block if spec.dtype == from_stock.dtype else torch.empty(size, dtype=from_stock.dtype)
        mix(dist, from_stock[one : one + size], from_stock[other : other + size], choose, made)
        if made is not block:
            block.copy_(made)
    return values.view(spec.shape)


def _mix_normal(
    dist: dict[str, Any], one: torch.Tensor, other: torch.Tensor, choose: random.Random, made: torch.Tensor
) -> None:
    """Turn two windows by an angle: independent normal numbers of mean 0 stay that, of the same deviation."""
    angle = choose.uniform(0.0, 2.0 * math.pi)
    torch.mul(one, math.cos(angle), out=made).add_(other, alpha=math.sin(angle))
    if mean := dist.get("mean", 0.0):
        made.add_(mean)


def _mix_uniform(
    dist: dict[str, Any], one: torch.Tensor, other: torch.Tensor, choose: random.Random, made: torch.Tensor
) -> None:
    """Add two windows and a random number modulo the range: one uniform number makes the sum uniform."""
    low, high = dist.get("low", 0.0), dist.get("high", 1.0)
    torch.add(one, other, out=made).add_(choose.uniform(0.0, high - low)).remainder_(high - low)
    made.add_(low).clamp_(low, high)


def drawn(dist: dict[str, Any], spec: TensorSpec, generator: torch.Generator) -> torch.Tensor:
    """Return an input's values for one call, drawn from the generator, on its device."""
    assert spec.shape is not None
    kind, on_cpu = dist["kind"], generator.device.type == "cpu"
    if kind in draws.INDEPENDENT and spec.elements > CHUNK:
        values = torch.empty(spec.elements, dtype=spec.dtype, device=generator.device)
        for start in range(0, spec.elements, CHUNK):
            part = values[start : start + CHUNK]
            part.copy_(draws.draw(dist, (part.numel(),), spec.dtype, generator))
        return values.view(spec.shape)
    if kind == "permutation" and on_cpu and spec.shape and spec.shape[-1] > DRAWN_ANEW:
        return _shuffled(spec, generator)
    if kind == "spd" and on_cpu and spec.elements > DRAWN_ANEW and spec.dtype != torch.float64:
        return _spd(dist, spec, generator)
    return draws.draw(dist, spec.shape, spec.dtype, generator)


def _shuffled(spec: TensorSpec, generator: torch.Generator) -> torch.Tensor:
    """Shuffle each row: sorting random keys, as `draws` does, takes a CPU eight times as long."""
    assert spec.shape is not None
    length = spec.shape[-1]
    rows = [torch.randperm(length, generator=generator) for _ in range(spec.elements // length)]
    return torch.stack(rows).to(spec.dtype).view(spec.shape)


def _spd(dist: dict[str, Any], spec: TensorSpec, generator: torch.Generator) -> torch.Tensor:
    """Draw a large symmetric positive definite matrix by a product in float32, which is twice as fast.

    Its error is a rounding of float32, which the shift of the diagonal outweighs. A matrix product's two halves may
    differ in the last bit, so the upper one is the lower one's.
    """
    assert spec.shape is not None
    factor = torch.randn(spec.shape, generator=generator)
    lower = (factor @ factor.mT).div_(spec.shape[-1]).tril_()
    lower.diagonal(dim1=-2, dim2=-1).add_(dist.get("shift", 1.0)).div_(2)
    return (lower + lower.mT).to(spec.dtype)
