"""Which stored kernels are worth reading for an op: those of ops that are made of the same."""

from __future__ import annotations

from typing import Any

import pytest

from tests import REPOSITORY
from warpsmith.kernels_db.library.seed_library import stock
from warpsmith.kernels_db.spec.op import Op, Target, load_op
from warpsmith.kernels_db.store.db import Database
from warpsmith.kernels_db.store.exemplars import Exemplar, find_exemplars
from warpsmith.kernels_db.store.structure import likeness, structure
from warpsmith.kernels_db.store.tables import DEFAULT_TEAM, KernelRow

GPU = Target.parse("cuda:sm_90")


def example(name: str) -> Op:
    """An op that ships."""
    return load_op(REPOSITORY / "examples" / f"{name}.yaml")


def found(db: Database, op: Op, language: str, technique: str | None = None, **changes: Any) -> tuple[Exemplar, ...]:
    """The kernels to read."""
    values: dict[str, Any] = {"most": 5, "team": DEFAULT_TEAM, "target": GPU, **changes}
    with db.reading() as session:
        return find_exemplars(session, op, language=language, technique=technique, **values)


def test_kernels_of_ops_that_are_made_of_the_same_are_found_whatever_their_dtypes(db: Database) -> None:
    stock(db)
    for_rms_norm = found(db, example("rms_norm"), "cuda")
    assert "layer_norm" in {one.op for one in for_rms_norm}, "float32 and bfloat16, rank 4 and rank 2"
    assert all({"reduction"} <= set(one.shared) for one in for_rms_norm)
    assert all(one.low > 1.0 for one in for_rms_norm)
    assert found(db, example("rms_norm"), "cpp") == ()
    assert found(db, example("rms_norm"), "cuda", target=Target.parse("cpu:x86_64")) == ()
    assert found(db, example("rms_norm"), "cuda", most=0) == ()


def test_the_ops_own_kernels_are_left_out(db: Database) -> None:
    stock(db)
    assert "softmax" not in {one.op for one in found(db, example("softmax"), "cuda")}


def test_the_same_rows_give_the_same_in_the_same_order(db: Database) -> None:
    stock(db)
    first = found(db, example("matmul"), "triton")
    assert first
    assert first == found(db, example("matmul"), "triton")
    assert len({one.op for one in first}) == len(first), "each of another op"


def test_those_that_won_by_the_technique_come_first(db: Database) -> None:
    stock(db)
    every = found(db, example("matmul"), "triton", most=50)
    for technique in sorted({str(one.idea["technique"]) for one in every}):
        sorted_by_it = found(db, example("matmul"), "triton", technique, most=50)
        order = [one.idea["technique"] == technique for one in sorted_by_it]
        assert order == sorted(order, reverse=True)
        assert any(order)


@pytest.mark.parametrize(
    "changes", [{"standing": "wrong"}, {"standing": "slower"}, {"ci_low": 0.99}, {"team": "others"}]
)
def test_a_kernel_that_is_in_doubt_or_anothers_is_no_exemplar(db: Database, changes: dict[str, Any]) -> None:
    stock(db)
    before = found(db, example("rms_norm"), "cuda")
    with db.writing() as session:
        for name, value in changes.items():
            setattr(session.get_one(KernelRow, before[0].kernel_id), name, value)
    after = found(db, example("rms_norm"), "cuda", team="mine" if "team" in changes else DEFAULT_TEAM)
    assert before[0].kernel_id not in {one.kernel_id for one in after}


def test_structure_is_what_an_op_computes_and_how_it_goes_over_its_tensors() -> None:
    assert structure(example("softmax")) == {"reduction", "softmax", "transcendental", "last axis"}
    assert "product" in structure(example("linear_gelu"))
    assert "convolution" in structure(example("conv2d"))
    assert structure(example("add_relu")) == {"pointwise"}


def test_likeness_counts_heavy_features_twice() -> None:
    assert likeness(frozenset(), frozenset()) == 0.0
    one, other = frozenset({"product", "pointwise"}), frozenset({"product"})
    assert likeness(one, other) == pytest.approx(2 / 3)
    assert likeness(one, frozenset({"pointwise"})) == pytest.approx(1 / 3)
    assert likeness(one, one) == 1.0
