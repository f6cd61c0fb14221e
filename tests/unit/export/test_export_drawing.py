"""Inputs drawn by the source that an export carries, held against the judge's own draws."""

from __future__ import annotations

from typing import Any, get_args

import pytest

torch = pytest.importorskip("torch", reason="the source draws with torch, which is not installed")

from warpsmith.kernels_db.export.drawing import UNDRAWN, draw_source, strided_source  # noqa: E402
from warpsmith.kernels_db.job.draws import draw  # noqa: E402
from warpsmith.kernels_db.spec.dist import Dist  # noqa: E402

CASES: list[tuple[dict[str, Any], tuple[int, ...], str]] = [
    ({"kind": "normal", "mean": 0.0, "std": 1.0}, (3, 5), "float32"),
    ({"kind": "normal", "mean": 2.0, "std": 0.5}, (7,), "bfloat16"),
    ({"kind": "uniform", "low": -1.0, "high": 3.0}, (4, 2), "float16"),
    ({"kind": "uniform", "low": 0.0, "high": 1.0}, (6,), "float64"),
    ({"kind": "constant", "value": 3}, (2, 2), "int32"),
    ({"kind": "randint", "low": -4, "high": 9}, (50,), "int64"),
    ({"kind": "bernoulli", "p": 0.25}, (40,), "bool"),
    ({"kind": "permutation"}, (3, 6), "int64"),
    ({"kind": "indptr", "total": 10}, (5,), "int32"),
    ({"kind": "ends", "total": 10}, (4,), "int32"),
    ({"kind": "spd", "shift": 2.0}, (2, 3, 3), "float32"),
]


@pytest.mark.parametrize(("dist", "shape", "dtype"), CASES, ids=[f"{d['kind']}-{t}" for d, _, t in CASES])
def test_the_source_draws_what_the_judge_draws(dist: dict[str, Any], shape: tuple[int, ...], dtype: str) -> None:
    source = draw_source(dist, [str(size) for size in shape], dtype, generator="generator", device="'cpu'")
    generator = torch.Generator().manual_seed(3)
    found = eval(source, {"torch": torch, "generator": generator})
    wanted = draw(dist, shape, getattr(torch, dtype), torch.Generator().manual_seed(3))
    assert found.dtype == wanted.dtype
    assert torch.equal(found, wanted)


def test_strides_keep_the_values() -> None:
    source = strided_source("torch.arange(6.0).reshape(2, 3)", ["2", "3"], ["1", "2"], "float32")
    found = eval(source, {"torch": torch})
    assert found.stride() == (1, 2)
    assert torch.equal(found, torch.arange(6.0).reshape(2, 3))


def test_every_distribution_is_drawn_or_named_as_undrawn() -> None:
    kinds = {get_args(each.model_fields["kind"].annotation)[0] for each in get_args(get_args(Dist)[0])}
    assert kinds == {dist["kind"] for dist, _, _ in CASES} | set(UNDRAWN)
