"""Which steps of a search are given kernels of other ops to read, and the switch that leaves them out."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from sqlalchemy import event

from tests.support.prompt_scenarios import EXEMPLARS
from tests.support.steps_support import OP, SETTINGS, Driver, create
from warpsmith.kernels_db.spec.op import parse_op
from warpsmith.kernels_db.store.db import Database
from warpsmith.kernels_db.store.records import add_op
from warpsmith.kernels_db.store.tables import KernelRow
from warpsmith.workers import steps
from warpsmith.workers.llm.base import ModelReply, ModelRequest
from warpsmith.workers.queue.model_step import ModelStep

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


class Seen(Exception):  # noqa: N818 - named for what happened
    """The request that a step made."""

    def __init__(self, request: ModelRequest) -> None:
        self.request = request


class Model:
    """Answers nothing: the step ends with its request."""

    provider = "scripted"

    def complete(self, request: ModelRequest) -> ModelReply:
        """Raise Seen."""
        raise Seen(request)


def ask(db: Database, work: steps.Work, *, exemplars: bool = True) -> tuple[ModelRequest, int]:
    """The request of a step, and how many statements that read kernels it took."""
    statements: list[str] = []

    def note(_connection: Any, _cursor: Any, statement: str, *_: Any) -> None:
        if "FROM kernels" in statement:
            statements.append(statement)

    step = ModelStep(db, SETTINGS.model_copy(update={"exemplars": exemplars}), work, "me", lambda: 1000.0)
    event.listen(db.engine, "before_cursor_execute", note)
    try:
        with pytest.raises(Seen) as seen:
            step.run(Model())
    finally:
        event.remove(db.engine, "before_cursor_execute", note)
    return seen.value.request, len(statements)


def test_ideas_on_the_root_and_first_code_are_given_them(db: Database) -> None:
    keep_kernel(db)
    driver = Driver(db, create(db))
    ideate = driver.until("ideate")
    assert "**sub_relu**" in ask(db, ideate)[0].messages[1]["content"]
    assert driver.complete(ideate)
    code = driver.claim(driver.advance()[0].attempt_id)
    assert code.kind == "code"
    assert "**sub_relu**" in ask(db, code)[0].messages[1]["content"]
    assert driver.complete(code)


def test_switched_off_they_are_left_out_and_the_question_is_the_same(db: Database) -> None:
    keep_kernel(db)
    work = Driver(db, create(db)).until("ideate")
    (shown, read), (plain, unread) = ask(db, work), ask(db, work, exemplars=False)
    assert "**sub_relu**" in shown.messages[1]["content"]
    assert "**sub_relu**" not in plain.messages[1]["content"]
    assert plain.identity == shown.identity
    assert read > 0
    assert unread == 0, "nothing is asked of the store for what is not shown"


def test_a_restart_asks_nothing_of_the_store(db: Database) -> None:
    keep_kernel(db)
    driver = Driver(db, create(db))
    ideate = driver.until("ideate")
    restart, read = ask(db, replace(ideate, params={**ideate.params, "technique_not_in": "fusion"}))
    assert "**sub_relu**" not in restart.messages[1]["content"]
    assert read == 0


def test_claiming_a_step_reads_no_kernels(db: Database) -> None:
    keep_kernel(db)
    driver = Driver(db, create(db))
    (message,) = driver.advance()
    assert driver.step(message)
    (message,) = driver.advance()
    statements: list[str] = []

    def note(_connection: Any, _cursor: Any, statement: str, *_: Any) -> None:
        statements.append(statement)

    event.listen(db.engine, "before_cursor_execute", note)
    try:
        assert driver.claim(message.attempt_id).kind == "ideate"
    finally:
        event.remove(db.engine, "before_cursor_execute", note)
    assert statements
    assert not [statement for statement in statements if "FROM kernels" in statement]
