"""Stored kernels that a search starts from."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.steps_support import OP, TARGET, Driver, create, idea, verdict
from warpsmith.kernels_db.spec.op import Target, parse_op
from warpsmith.kernels_db.store.db import Database
from warpsmith.kernels_db.store.ids import new_id
from warpsmith.kernels_db.store.records import add_op, similar_kernels
from warpsmith.kernels_db.store.tables import EventRow, KernelRow
from warpsmith.workers import steps

DOCUMENT = OP.document()
SUM = parse_op(
    {**DOCUMENT, "name": "sum_relu", "reference": DOCUMENT["reference"].replace("relu(x + y)", "relu(x+y+y)")}
)
SIGMOID = parse_op({**DOCUMENT, "name": "sigmoid", "reference": DOCUMENT["reference"].replace("relu", "sigmoid")})


def kernel(number: int, arguments: str = "x, y, out") -> str:
    return f"def run({arguments}):\n    return {1000 + number}\n"


def store(db: Database, spec: Any = OP, *, number: int = 0, score: float = 1.5, **changes: Any) -> str:
    """A stored kernel; returns its id."""
    source = changes.pop("source", kernel(number))
    values = {
        "target": str(TARGET),
        "language": "cpp",
        "lineage": [{"seq": 0, "idea": None}, {"seq": 4, "idea": idea(number, "compute")}],
        **changes,
    }
    with db.writing() as session:
        row = KernelRow(
            id=new_id("kn"),
            op_id=add_op(session, spec, 1.0)[0].id,
            source=source,
            source_digest=f"{hash(source) % 10**12:064d}",
            score=score,
            ci_low=score,
            ci_high=score,
            envelope={},
            evidence={},
            created_at=float(number),
            **values,
        )
        session.add(row)
        return row.id


def offered(db: Database, target: Target = TARGET, language: str = "cpp", most: int = 3) -> list[str]:
    with db.reading() as session:
        return [offer.kernel.id for offer in similar_kernels(session, OP, target, language, most)]


def test_the_same_op_comes_first_then_the_architecture_then_likeness_then_speed(db: Database) -> None:
    elsewhere = store(db, number=1, score=9.0, target="cpu:aarch64")
    alike = store(db, SUM, number=2, score=5.0)
    slow, fast = store(db, number=3, score=1.1), store(db, number=4, score=2.0)
    store(db, SIGMOID, number=5, score=99.0)
    assert offered(db, most=9) == [fast, slow, elsewhere, alike]
    assert offered(db) == [fast, slow, elsewhere]


@pytest.mark.parametrize(
    "changes",
    [
        {"target": "cuda:sm_90"},
        {"language": "triton"},
        {"source": kernel(1, "x, out")},
        {"source": kernel(1, "x, y, out, more")},
        {"source": "no Python ("},
    ],
)
def test_what_cannot_fit_is_not_offered(db: Database, changes: dict[str, Any]) -> None:
    store(db, number=1, **changes)
    assert offered(db) == []


def test_one_source_is_offered_once(db: Database) -> None:
    store(db, SUM, number=1)
    same = store(db, number=1)
    assert offered(db) == [same]


def test_seeds_are_judged_like_any_candidate_after_the_baselines(db: Database) -> None:
    first = store(db, number=1, score=50.0)
    store(db, number=2, score=40.0, lineage=[{"seq": 0, "idea": None}])
    driver = Driver(db, create(db, seeds=3))
    root, one, other = driver.nodes()
    assert [(node.origin, node.state, node.round) for node in (one, other)] == [("stored", "coded", 0)] * 2
    assert (one.parent_id, one.source, one.technique) == (root.id, kernel(1), "compute")
    assert (one.idea, other.idea, other.technique) == (idea(1, "compute"), None, None)
    assert (one.verdict, one.score, one.verification) == (None, None, "none")  # what was measured elsewhere is nothing
    with db.reading() as session:
        events = [row for row in session.query(EventRow).all() if row.type == "node.seeded"]
    assert events[0].payload["kernel_id"] == first
    assert events[0].payload["op"] == OP.name
    messages = driver.advance()
    assert [driver.claim(message.attempt_id).level for message in messages] == ["baseline"]


def test_a_seed_that_was_joined_brings_the_idea_of_its_part_and_no_numbers(db: Database) -> None:
    part = idea(3, "compute") | {"mechanism": "as #1 does, in registers"}
    join = idea(9, "control_flow") | {"title": "Join #3 and #7 by size"}
    lineage = [
        {"seq": 0, "origin": "model", "idea": None},
        {"seq": 3, "origin": "model", "idea": part},
        {"seq": 9, "origin": "joined", "idea": join},
    ]
    store(db, number=1, lineage=lineage)
    seed = Driver(db, create(db, seeds=3)).nodes()[1]
    assert (seed.technique, seed.idea) == ("compute", part | {"mechanism": "as no. 1 of its search does, in registers"})


def test_a_search_with_seeds_ends_as_one_without(db: Database) -> None:
    store(db, number=1, score=50.0)
    driver = Driver(db, create(db, seeds=3))
    assert driver.run().state == "finished"
    driver.check()
    judged = [node for node in driver.nodes() if node.origin == "stored"]
    assert [node.state for node in judged] == ["judged"]
    assert any(node.origin == "model" for node in driver.nodes())


def test_seeds_take_at_most_a_quarter_of_the_candidates(db: Database) -> None:
    for number in range(5):
        store(db, number=number)
    for candidates, expected in ((3, 0), (4, 1), (11, 2), (12, 3), (1000, 3)):
        driver = Driver(db, create(db, seeds=3, budget={"candidates": candidates}))
        assert sum(node.origin == "stored" for node in driver.nodes()) == expected
    assert len(Driver(db, create(db, seeds=1)).nodes()) == 2
    assert len(Driver(db, create(db)).nodes()) == 1


def test_an_idea_that_a_seed_realises_is_not_tried_again(db: Database) -> None:
    store(db, number=1)
    driver = Driver(db, create(db, seeds=3))
    work = driver.until("ideate")
    assert steps.complete_ideate(db, work.attempt_id, "me", [idea(1, "compute"), idea(7)], [], driver.now)
    assert [node.reason for node in driver.nodes() if node.state == "closed"] == ["the same idea as node #1"]


def test_a_seed_that_is_wrong_here_ends_nothing(db: Database) -> None:
    store(db, number=1)
    driver = Driver(db, create(db, seeds=3))
    work = driver.until("judge")
    assert work.node.seq == 1
    assert steps.complete_judge(db, work.attempt_id, "me", verdict("screen", "rejected"), driver.now)
    assert driver.search().state == "running"
    assert driver.search().best_node_id is None
