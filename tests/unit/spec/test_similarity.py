"""Which ops are alike, and which kernels fit them."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from warpsmith.kernels_db.job.reference_operations import operations
from warpsmith.kernels_db.spec.op import Op, parse_op
from warpsmith.kernels_db.store.similarity import LEAST, MOST, fits, jaccard, similarity

SPEC: dict[str, Any] = {
    "schema_version": 1,
    "name": "add_relu",
    "axes": {"n": {"kind": "var"}},
    "inputs": [{"name": "x", "shape": ["n"], "dtype": "float32"}, {"name": "y", "shape": ["n"], "dtype": "float32"}],
    "outputs": [{"name": "out", "shape": ["n"], "dtype": "float32"}],
    "reference": "import torch\n\ndef run(x, y):\n    return torch.relu(x + y)\n",
    "workloads": [{"id": "large", "role": "bench", "axes": {"n": 1024}}],
}
OP = parse_op(SPEC)


def op(reference: str | None = None, **changes: Any) -> Op:
    document = {**SPEC, "name": "other", **changes}
    if reference is not None:
        document["reference"] = f"import torch\n\ndef run(x, y):\n    return {reference}\n"
    return parse_op(document)


def test_other_workloads_and_words_make_the_same_op() -> None:
    workloads = [{"id": "small", "role": "bench", "axes": {"n": 8}}]
    assert similarity(OP, parse_op({**SPEC, "workloads": workloads, "description": "what it is"})) == 1.0


@pytest.mark.parametrize(
    ("reference", "expected"),
    [
        ("torch.nn.functional.relu(torch.add(x, y))", MOST),
        ("torch.relu(y + x)", MOST),
        ("torch.relu(x + y) * 2.0", 2 / 3),
        ("torch.sigmoid(x + y)", 0.0),
        ("torch.sigmoid(x - y)", 0.0),
        ("x", 0.0),
    ],
)
def test_likeness_is_the_share_of_operations(reference: str, expected: float) -> None:
    assert similarity(OP, op(reference)) == pytest.approx(expected)


def test_a_family_makes_ops_alike() -> None:
    one, other = parse_op({**SPEC, "family": "pointwise"}), op("torch.sigmoid(x - y)", family="pointwise")
    assert similarity(one, other) == LEAST
    assert similarity(one, op("torch.sigmoid(x - y)", family="other")) == 0.0


@pytest.mark.parametrize(
    "changes",
    [
        {"inputs": [{**SPEC["inputs"][0], "dtype": "float64"}, SPEC["inputs"][1]]},
        {"outputs": [{**SPEC["outputs"][0], "shape": ["n", "n"]}]},
        {
            "inputs": [*SPEC["inputs"], {"name": "s", "dtype": "float32", "value": 1.0}],
            "reference": SPEC["reference"].replace("x, y):", "x, y, s):"),
        },
        {"inputs": [{**SPEC["inputs"][0], "mutated": True}, SPEC["inputs"][1]]},
    ],
)
def test_what_run_takes_must_agree(changes: dict[str, Any]) -> None:
    one, other = ({**SPEC, "family": "pointwise", **more} for more in ({}, changes))
    assert similarity(parse_op(one), parse_op(other)) == 0.0


def test_operations_are_named_without_what_the_reference_defines() -> None:
    reference = "def helper(a):\n    return a.exp_()\n\ndef run(x):\n    x += 1\n    return helper(x) @ x\n"
    assert operations(reference) == {"exp", "add", "matmul"}
    assert operations("this is no Python") == frozenset()


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("def run(x, y, out):\n    pass\n", True),
        ("def run(a, b, c):\n    pass\n", True),
        ("def run(x, out):\n    pass\n", False),
        ("def run(x, y, out, *more):\n    pass\n", False),
        ("def run(x, y, *, out):\n    pass\n", False),
        ("run = 1\n", False),
        ("def run(", False),
    ],
)
def test_a_kernel_fits_by_the_number_of_its_arguments(source: str, expected: bool) -> None:
    assert fits(source, OP) is expected


names = st.frozensets(st.sampled_from("abcdef"))


@given(names, names)
def test_the_measure_is_symmetric_and_between_0_and_1(one: frozenset[str], other: frozenset[str]) -> None:
    assert jaccard(one, other) == jaccard(other, one)
    assert 0.0 <= jaccard(one, other) <= 1.0
    assert (jaccard(one, other) == 1.0) == (one == other != frozenset())
