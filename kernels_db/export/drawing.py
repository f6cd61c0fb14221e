"""Python source that draws an input from the op spec's distributions, for formats with code.

The values are distributed as `warpsmith.kernels_db.job.draws` draws them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

Dist = Mapping[str, Any]
UNDRAWN = ("code",)
"""Distributions that are a module of the user's own; an expression cannot hold one."""


def draw_source(dist: Dist, sizes: Sequence[str], dtype: str, *, generator: str = "", device: str = "") -> str:
    """Return an expression over `torch` for a contiguous tensor drawn from `dist`.

    `dist` is a distribution's document, its amounts Python source or numbers; `sizes` holds the source of each size;
    `generator` and `device` are sources too, empty for torch's default. Raises KeyError for a kind in `UNDRAWN`.
    """
    place = f", device={device}" if device else ""
    random = place + (f", generator={generator}" if generator else "")
    return _SOURCES[dist["kind"]](dist, sizes, dtype, place, random)


def strided_source(drawn: str, sizes: Sequence[str], strides: Sequence[str], dtype: str, *, device: str = "") -> str:
    """Return source for the same values in a tensor of those strides, none of them 0."""
    place = f", device={device}" if device else ""
    return f"torch.empty_strided({_tuple(sizes)}, {_tuple(strides)}, dtype=torch.{dtype}{place}).copy_({drawn})"


def _tuple(items: Sequence[str]) -> str:
    return f"({', '.join(items)}{',' if len(items) == 1 else ''})"


def _wide(dtype: str) -> str:
    return "float64" if dtype == "float64" else "float32"


def _affine(drawn: str, scale: float, shift: float, dtype: str) -> str:
    """Return source of `drawn * scale + shift`, rounded to `dtype`."""
    source = drawn if scale == 1.0 else f"{drawn} * {scale!r}"
    source = source if shift == 0.0 else f"{source} + {shift!r}"
    if _wide(dtype) == dtype:
        return source
    return f"{source}.to(torch.{dtype})" if source == drawn else f"({source}).to(torch.{dtype})"


def _normal(dist: Dist, sizes: Sequence[str], dtype: str, _: str, random: str) -> str:
    drawn = f"torch.randn({_tuple(sizes)}, dtype=torch.{_wide(dtype)}{random})"
    return _affine(drawn, dist.get("std", 1.0), dist.get("mean", 0.0), dtype)


def _uniform(dist: Dist, sizes: Sequence[str], dtype: str, _: str, random: str) -> str:
    low, high = dist.get("low", 0.0), dist.get("high", 1.0)
    return _affine(f"torch.rand({_tuple(sizes)}, dtype=torch.{_wide(dtype)}{random})", high - low, low, dtype)


def _constant(dist: Dist, sizes: Sequence[str], dtype: str, place: str, _: str) -> str:
    return f"torch.full({_tuple(sizes)}, {dist['value']!r}, dtype=torch.{dtype}{place})"


def _randint(dist: Dist, sizes: Sequence[str], dtype: str, _: str, random: str) -> str:
    return f"torch.randint({dist.get('low', 0)}, {dist['high']}, {_tuple(sizes)}, dtype=torch.{dtype}{random})"


def _bernoulli(dist: Dist, sizes: Sequence[str], dtype: str, _: str, random: str) -> str:
    return f"(torch.rand({_tuple(sizes)}{random}) < {dist.get('p', 0.5)!r}).to(torch.{dtype})"


def _permutation(_: Dist, sizes: Sequence[str], dtype: str, __: str, random: str) -> str:
    return f"torch.rand({_tuple(sizes)}, dtype=torch.float64{random}).argsort(-1).to(torch.{dtype})"


def _indptr(dist: Dist, sizes: Sequence[str], dtype: str, place: str, random: str) -> str:
    total = dist["total"]
    inner = f"torch.randint(0, {total} + 1, (max(0, {sizes[0]} - 2),){random}).sort().values"
    edges = f"torch.zeros(1, dtype=torch.int64{place}), {inner}, torch.full((1,), {total}, dtype=torch.int64{place})"
    return f"torch.cat([{edges}])[-({sizes[0]}) :].to(torch.{dtype})"


def _ends(dist: Dist, sizes: Sequence[str], dtype: str, place: str, random: str) -> str:
    return f"{_indptr(dist, [f'{sizes[0]} + 1'], dtype, place, random)}[1:].clone()"


def _spd(dist: Dist, sizes: Sequence[str], dtype: str, place: str, random: str) -> str:
    shift = f"{dist.get('shift', 1.0)!r} * torch.eye({sizes[-1]}, dtype=torch.float64{place})"
    factor = f"torch.randn({_tuple(sizes)}, dtype=torch.float64{random})"
    return f"(lambda a: a @ a.mT / a.shape[-1] + {shift})({factor}).to(torch.{dtype})"


_SOURCES = {
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
