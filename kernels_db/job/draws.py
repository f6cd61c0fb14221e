"""How input values are drawn from resolved distributions, which the op spec describes. PyTorch alone is needed.

The judge draws its secret inputs with this, and an export carries a copy for its self-check. `code` distributions are
not drawn here: they are somebody else's code, which only a runner may run.
"""

from __future__ import annotations

from typing import Any

import torch

Shape = tuple[int, ...]


def draw(dist: dict[str, Any], shape: Shape, dtype: torch.dtype, generator: torch.Generator) -> torch.Tensor:
    """A contiguous tensor of `shape` and `dtype` on the generator's device.

    Floating values are drawn in float32 (float64 for float64) and rounded to `dtype`.
    Raises ValueError for a kind that is not drawn here.
    """
    kind = dist["kind"]
    if kind not in _DRAWS:
        raise ValueError(f"distribution {kind!r} cannot be drawn here, expected one of {', '.join(sorted(_DRAWS))}")
    return _DRAWS[kind](dist, shape, dtype, generator)


def _wide(dtype: torch.dtype) -> torch.dtype:
    return torch.float64 if dtype == torch.float64 else torch.float32


def _normal(dist: dict[str, Any], shape: Shape, dtype: torch.dtype, generator: torch.Generator) -> torch.Tensor:
    drawn = torch.randn(shape, dtype=_wide(dtype), generator=generator, device=generator.device)
    return drawn.mul_(dist.get("std", 1.0)).add_(dist.get("mean", 0.0)).to(dtype)


def _uniform(dist: dict[str, Any], shape: Shape, dtype: torch.dtype, generator: torch.Generator) -> torch.Tensor:
    low, high = dist.get("low", 0.0), dist.get("high", 1.0)
    drawn = torch.rand(shape, dtype=_wide(dtype), generator=generator, device=generator.device)
    return drawn.mul_(high - low).add_(low).to(dtype)


def _constant(dist: dict[str, Any], shape: Shape, dtype: torch.dtype, generator: torch.Generator) -> torch.Tensor:
    return torch.full(shape, dist["value"], dtype=dtype, device=generator.device)


def _randint(dist: dict[str, Any], shape: Shape, dtype: torch.dtype, generator: torch.Generator) -> torch.Tensor:
    low, device = dist.get("low", 0), generator.device
    return torch.randint(low, dist["high"], shape, dtype=dtype, generator=generator, device=device)


def _bernoulli(dist: dict[str, Any], shape: Shape, dtype: torch.dtype, generator: torch.Generator) -> torch.Tensor:
    drawn: torch.Tensor = torch.rand(shape, generator=generator, device=generator.device) < dist.get("p", 0.5)
    return drawn.to(dtype)


def _permutation(_: dict[str, Any], shape: Shape, dtype: torch.dtype, generator: torch.Generator) -> torch.Tensor:
    return torch.rand(shape, dtype=torch.float64, generator=generator, device=generator.device).argsort(-1).to(dtype)


def _indptr(dist: dict[str, Any], shape: Shape, dtype: torch.dtype, generator: torch.Generator) -> torch.Tensor:
    device, total = generator.device, dist["total"]
    inner = torch.randint(0, total + 1, (max(0, shape[0] - 2),), generator=generator, device=device).sort().values
    edges = [torch.zeros(1, dtype=torch.int64, device=device), inner, torch.tensor([total], device=device)]
    return torch.cat(edges)[-shape[0] :].to(dtype)


def _ends(dist: dict[str, Any], shape: Shape, dtype: torch.dtype, generator: torch.Generator) -> torch.Tensor:
    return _indptr(dist, (shape[0] + 1,), dtype, generator)[1:].clone()


def _spd(dist: dict[str, Any], shape: Shape, dtype: torch.dtype, generator: torch.Generator) -> torch.Tensor:
    factor = torch.randn(shape, dtype=torch.float64, generator=generator, device=generator.device)
    identity = torch.eye(shape[-1], dtype=torch.float64, device=generator.device)
    matrices: torch.Tensor = factor @ factor.mT / shape[-1] + dist.get("shift", 1.0) * identity
    return matrices.to(dtype)


_DRAWS = {
    "normal": _normal,
    "uniform": _uniform,
    "constant": _constant,
    "randint": _randint,
    "bernoulli": _bernoulli,
    "permutation": _permutation,
    "indptr": _indptr,
    "ends": _ends,
    "spd": _spd,
}
INDEPENDENT = frozenset({"normal", "uniform", "randint", "bernoulli"})
"""Kinds whose elements are independent of each other, so that any window of a draw is a draw."""
