"""Why a kernel can have no place in any model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from benchmarks import placeable
from tests.exporting import SCALED_ADD, SCALED_ADD_CPP, exported
from warpsmith.kernels_db.export.package import build
from warpsmith.workers.optimize import shipped
from warpsmith.workers.optimize.compiled.kernel import Kernel
from warpsmith.workers.optimize.compiled.served import Served

pytestmark = pytest.mark.filterwarnings("ignore:.torch.jit.script_method. is deprecated:DeprecationWarning")
"""Inductor imports a module of its own that warns."""

LABELS = {"name": "y", "shape": ["rows", "columns"], "dtype": "int64", "dist": {"kind": "randint", "high": 5}}


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"name": "fits"}, ""),
        (
            {"name": "decides", "reference": "def run(x, y, m):\n    return x + m * y if y[0, 0].item() else x\n"},
            "its reference cannot be traced: DataDependentOutputException",
        ),
        (
            {"name": "takes_labels", "inputs": [SCALED_ADD["inputs"][0], LABELS, SCALED_ADD["inputs"][2]]},  # type: ignore[index]
            "which integers make sense is not known of y (int64)",
        ),
    ],
)
def test_a_kernel_without_places_says_why(changed: dict[str, Any], told: str, tmp_path: Path) -> None:
    written = build(exported(SCALED_ADD | changed, SCALED_ADD_CPP), tmp_path)
    reason = placeable.reason(Served(Kernel(written / written.name)))
    assert reason.startswith(told)
    assert bool(reason) == bool(told)


@pytest.mark.nightly
def test_kernels_that_ship_have_places_but_for_those_that_are_named() -> None:
    """A reference that is changed so that it cannot be traced loses its places without a word."""
    target = "cuda:sm_90"
    without = {served.op for served in shipped.shipped_of(target) if placeable.reason(served)}
    labelled = {"cross_entropy", "fused_linear_cross_entropy"}
    behind = {"moe_experts"}  # a place only behind a topk that the model computes
    others = {"embedding_bag", "embedding_bag_bf16", "moe_grouped_linear", "paged_decode_attention"}
    assert without == labelled | behind | others
