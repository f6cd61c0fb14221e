"""Which stored kernels are worth reading for an op: those of ops that are made of the same."""

from __future__ import annotations

import functools
import tempfile
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import event

from tests import REPOSITORY
from tests.services import migrate
from warpsmith.kernels_db.library.seed_library import stock
from warpsmith.kernels_db.spec.op import Op, Target, load_op, parse_op
from warpsmith.kernels_db.store.db import Database
from warpsmith.kernels_db.store.exemplar import Exemplar
from warpsmith.kernels_db.store.exemplars import MOST_OF_AN_OP, NEARLY_AS_ALIKE, find_exemplars
from warpsmith.kernels_db.store.records import add_op
from warpsmith.kernels_db.store.structure import likeness, structure
from warpsmith.kernels_db.store.tables import DEFAULT_TEAM, KernelRow

GPU = Target.parse("cuda:sm_90")


@functools.cache
def _stocked_file() -> bytes:
    """A SQLite database with the kernels that ship, made once in this process: that takes longer than a test."""
    with tempfile.TemporaryDirectory(prefix="ws-sqlite-") as directory:
        file = Path(directory) / "stocked.db"
        database = Database(f"sqlite:///{file}")
        migrate(database)
        stock(database)
        database.dispose()
        return file.read_bytes()


@pytest.fixture
def shipped(db: Database) -> None:
    """Put the kernels that ship into the database."""
    if db.is_sqlite:
        Path(str(db.url.database)).write_bytes(_stocked_file())  # nothing has connected to it yet
    else:
        stock(db)


def example(name: str) -> Op:
    """An op that ships."""
    return load_op(REPOSITORY / "examples" / f"{name}.yaml")


def found(db: Database, op: Op, language: str, technique: str | None = None, **changes: Any) -> tuple[Exemplar, ...]:
    """The kernels to read."""
    values: dict[str, Any] = {"most": 5, "team": DEFAULT_TEAM, "target": GPU, **changes}
    with db.reading() as session:
        return find_exemplars(session, op, language=language, technique=technique, **values)


@pytest.mark.usefixtures("shipped")
def test_kernels_of_ops_that_are_made_of_the_same_are_found_whatever_their_dtypes(db: Database) -> None:
    for_rms_norm = found(db, example("rms_norm"), "cuda")
    assert "layer_norm" in {one.op for one in for_rms_norm}, "float32 and bfloat16, rank 4 and rank 2"
    assert all({"reduction"} <= set(one.shared) for one in for_rms_norm)
    assert all(one.low > 1.0 for one in for_rms_norm)
    assert found(db, example("rms_norm"), "cpp") == ()
    assert found(db, example("rms_norm"), "cuda", target=Target.parse("cpu:x86_64")) == ()
    assert found(db, example("rms_norm"), "cuda", most=0) == ()


@pytest.mark.usefixtures("shipped")
def test_the_ops_own_kernels_are_left_out(db: Database) -> None:
    assert "softmax" not in {one.op for one in found(db, example("softmax"), "cuda")}


@pytest.mark.usefixtures("shipped")
def test_the_same_rows_give_the_same_in_the_same_order(db: Database) -> None:
    first = found(db, example("matmul"), "triton")
    assert first
    assert first == found(db, example("matmul"), "triton")
    assert len({one.op for one in first}) == len(first), "each of another op"


@pytest.mark.usefixtures("shipped")
def test_those_that_won_by_the_technique_come_first_among_those_nearly_as_alike(db: Database) -> None:
    op = example("matmul")
    every = found(db, op, "triton", most=50)
    alike = {one.kernel_id: likeness(structure(op), structure(example(one.op))) for one in every}
    nearest = max(alike.values()) - NEARLY_AS_ALIKE
    for technique in sorted({str(one.idea["technique"]) for one in every}):
        sorted_by_it = found(db, op, "triton", technique, most=50)
        order = [(alike[one.kernel_id] < nearest, one.idea["technique"] != technique) for one in sorted_by_it]
        assert order == sorted(order)
        assert not all(missed for _, missed in order)


@pytest.mark.usefixtures("shipped")
def test_an_op_that_is_much_less_alike_is_not_first_for_its_technique(db: Database) -> None:
    """A request for a softmax's memory accesses had shown a scan, which won by them, in place of the softmax."""
    log_softmax = Op.model_validate(
        example("softmax").model_dump(mode="json")
        | {"name": "log_softmax", "reference": "import torch\n\ndef run(x):\n    return torch.log_softmax(x, dim=-1)\n"}
    )
    techniques = {one.op: str(one.idea["technique"]) for one in found(db, log_softmax, "cuda", most=50)}
    for technique in sorted(set(techniques.values())):
        (first,) = found(db, log_softmax, "cuda", technique, most=1)
        assert first.op == "softmax", technique


IDEA = {"technique": "fusion", "title": "one pass", "mechanism": "each row is read once"}


def add_kernels(db: Database, op: Op, count: int, **changes: Any) -> None:
    """Store kernels of `op` that are faster than any that ships."""
    values: dict[str, Any] = {"lineage": [{"seq": 1, "origin": "model", "idea": IDEA}], "score": 90.0, **changes}
    with db.writing() as session:
        row, _ = add_op(session, op, 9e9)
        session.flush()
        session.add_all(
            KernelRow(
                id=f"kn_{row.id[-8:]}_{number}",
                op_id=row.id,
                target=str(GPU),
                language="cuda",
                source=f"# {number}\n",
                source_digest=f"{number:064d}",
                ci_low=80.0,
                ci_high=99.0,
                envelope={},
                evidence={},
                created_at=9e9,
                **values,
            )
            for number in range(count)
        )


@pytest.mark.usefixtures("shipped")
@pytest.mark.parametrize("other", ["conv2d", "rms_norm", "layer_norm"])
def test_many_fast_kernels_of_one_op_leave_the_others_their_place(db: Database, other: str) -> None:
    before = {one.op for one in found(db, example("rms_norm"), "cuda")}
    assert "layer_norm" in before
    add_kernels(db, example(other), 200)
    assert {one.op for one in found(db, example("rms_norm"), "cuda")} == before


@pytest.mark.usefixtures("shipped")
def test_kernels_without_an_idea_take_no_place(db: Database) -> None:
    before = found(db, example("rms_norm"), "cuda")
    assert "layer_norm" in {one.op for one in before}
    add_kernels(db, example("layer_norm"), MOST_OF_AN_OP + 1, lineage=[{"seq": 0, "idea": None}])
    assert found(db, example("rms_norm"), "cuda") == before


def test_a_join_is_read_by_the_idea_of_its_part_and_without_its_search_s_numbers(db: Database) -> None:
    part = IDEA | {"mechanism": "as #3 does, with wider loads, and as #4"}
    join = IDEA | {"technique": "control_flow", "title": "Join #3 and #7 by size"}
    lineage = [
        {"seq": 0, "origin": "model", "idea": None},
        {"seq": 3, "origin": "model", "idea": IDEA | {"title": "rows in pairs, unlike #1"}},
        {"seq": 5, "origin": "model", "idea": part},
        {"seq": 9, "origin": "joined", "idea": join},
    ]
    add_kernels(db, example("layer_norm"), 1, lineage=lineage)
    (one,) = found(db, example("rms_norm"), "cuda")
    told = 'as no. 3 of its search ("rows in pairs, unlike another") does, with wider loads, and as no. 4 of its search'
    assert (one.idea["title"], one.idea["mechanism"]) == ("one pass", told)


@pytest.mark.usefixtures("shipped")
def test_sources_of_the_chosen_alone_are_read_and_ops_once(db: Database) -> None:
    add_kernels(db, example("layer_norm"), 20)
    first = found(db, example("rms_norm"), "cuda", most=1)
    statements: list[str] = []

    def note(_connection: Any, _cursor: Any, statement: str, *_: Any) -> None:
        statements.append(statement)

    event.listen(db.engine, "before_cursor_execute", note)
    try:
        assert found(db, example("rms_norm"), "cuda", most=1) == first
    finally:
        event.remove(db.engine, "before_cursor_execute", note)
    assert not [statement for statement in statements if "ops.spec" in statement]
    (of_sources,) = [statement for statement in statements if "kernels.source," in statement]
    assert "kernels.lineage" not in of_sources


@pytest.mark.usefixtures("shipped")
@pytest.mark.parametrize(
    "changes", [{"standing": "wrong"}, {"standing": "slower"}, {"ci_low": 0.99}, {"team": "others"}]
)
def test_a_kernel_that_is_in_doubt_or_anothers_is_no_exemplar(db: Database, changes: dict[str, Any]) -> None:
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
    assert "scan" in structure(example("selective_scan"))


WRITTEN_OUT = """
import torch

def run(query, key, value):
    scores = query.float() @ key.float().transpose(-1, -2)
    scores = 50.0 * torch.tanh(scores / 50.0)
    weights = torch.softmax(scores, dim=-1)
    return torch.matmul(weights, value.float()).to(query.dtype)
"""
IN_ONE = """
import torch

def run(query, key, value):
    return torch.softmax(query.float() @ key.float().mT, dim=-1) @ value.float()
"""
GATE = """
import torch

def run(x, router, experts):
    weights = torch.softmax(x @ router, dim=-1)
    return (torch.matmul(x, experts) * weights[..., None]).sum(-2)
"""


def test_an_attention_that_is_written_out_is_told_from_a_gate_beside_a_product(db: Database) -> None:
    written = parse_op(example("attention").document() | {"reference": WRITTEN_OUT})
    gate = parse_op(example("attention").document() | {"reference": GATE})
    assert "attention" in structure(written)
    assert "attention" not in structure(gate)
    assert "attention" in structure(parse_op(written.document() | {"reference": IN_ONE}))
    assert structure(example("attention")) < structure(written)
    stock(db)
    assert {"mla_decode", "paged_decode_attention"} <= {one.op for one in found(db, written, "triton")}


def test_likeness_counts_heavy_features_twice() -> None:
    assert likeness(frozenset(), frozenset()) == 0.0
    one, other = frozenset({"product", "pointwise"}), frozenset({"product"})
    assert likeness(one, other) == pytest.approx(2 / 3)
    assert likeness(one, frozenset({"pointwise"})) == pytest.approx(1 / 3)
    assert likeness(one, one) == 1.0
