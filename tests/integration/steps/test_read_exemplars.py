"""Which steps of a search are given kernels of other ops to read, and the switch that leaves them out."""

from __future__ import annotations

from dataclasses import replace

from tests.support.prompt_scenarios import EXEMPLARS
from tests.support.steps_support import OP, Driver, create
from warpsmith.kernels_db.spec.op import parse_op
from warpsmith.kernels_db.store.db import Database
from warpsmith.kernels_db.store.records import add_op
from warpsmith.kernels_db.store.tables import KernelRow
from warpsmith.workers.llm.prompt.requests import build, identity
from warpsmith.workers.queue.model_step import request_context

OTHER = parse_op(
    OP.model_dump(mode="json", exclude_none=True)
    | {"name": "sub_relu", "reference": "import torch\n\ndef run(x, y):\n    return torch.relu(x - y)\n"}
)


def keep_kernel(db: Database) -> None:
    """Store a kernel of another op that is made of the same."""
    with db.writing() as session:
        row, _ = add_op(session, OTHER, 1.0)
        session.flush()
        session.add(
            KernelRow(
                id="kn_1",
                op_id=row.id,
                target="cpu:x86_64",
                language="cpp",
                source="def run(x, y, out):\n    pass\n",
                source_digest="d" * 64,
                score=2.0,
                ci_low=1.9,
                ci_high=2.1,
                envelope={},
                evidence={"workloads": []},
                lineage=[{"idea": dict(EXEMPLARS[0].idea)}],
                created_at=1.0,
            )
        )


def test_ideas_on_the_root_and_first_code_are_given_them(db: Database) -> None:
    keep_kernel(db)
    driver = Driver(db, create(db))
    ideate = driver.until("ideate")
    assert [one.op for one in ideate.exemplars] == ["sub_relu"]
    assert "**sub_relu**" in build(request_context(ideate)).messages[1]["content"]
    assert driver.complete(ideate)
    code = driver.claim(driver.advance()[0].attempt_id)
    assert code.kind == "code"
    assert [one.op for one in code.exemplars] == ["sub_relu"]
    assert driver.complete(code)


def test_switched_off_they_are_left_out_and_the_question_is_the_same(db: Database) -> None:
    keep_kernel(db)
    work = Driver(db, create(db)).until("ideate")
    shown, plain = request_context(work), request_context(work, exemplars=False)
    assert plain == replace(shown, exemplars=())
    assert "**sub_relu**" not in build(plain).messages[1]["content"]
    assert identity(plain) == identity(shown)
