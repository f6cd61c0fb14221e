"""Which choices of an op's named dtypes a package has a kernel for."""

from __future__ import annotations

from typing import Any

from tests.exporting import SCALED_ADD, SCALED_ADD_CPP, exported
from warpsmith.kernels_db.export.dtypes import of_each_dtype
from warpsmith.kernels_db.spec.op import parse_op

NAMES = {"first": ["float32", "bfloat16"], "second": ["float32", "bfloat16"]}


def workload(name: str, role: str, rows: int, first: str, second: str) -> dict[str, Any]:
    return {"id": name, "role": role, "axes": {"rows": rows}, "dtypes": {"first": first, "second": second}}


def test_a_choice_that_has_only_tests_is_left_out() -> None:
    inputs: Any = SCALED_ADD["inputs"]
    x, y, m = inputs
    spec = {
        **SCALED_ADD,
        "dtypes": NAMES,
        "inputs": [{**x, "dtype": "first"}, {**y, "dtype": "second"}, m],
        "workloads": [
            workload("single", "bench", 3, "float32", "float32"),
            workload("half", "bench", 5, "bfloat16", "bfloat16"),
            workload("mixed", "test", 7, "float32", "bfloat16"),
        ],
    }
    single, half = of_each_dtype(exported(spec, SCALED_ADD_CPP))
    assert [item.dtype for item in parse_op(single.spec).inputs[:2]] == ["float32"] * 2
    assert [item.dtype for item in parse_op(half.spec).inputs[:2]] == ["bfloat16"] * 2
