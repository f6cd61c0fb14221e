"""Free Python is judged alone: no search takes or keeps it, and it is not exported."""

from __future__ import annotations

from pathlib import Path

from sqlalchemy import select

from kernels_db.db import Database
from kernels_db.models import KernelRow, NodeRow
from tests.integration.api_support import client_of, database, fields, problem, seed, settings_for
from tests.integration.steps_support import Driver, create, small_policy, verdict
from workers import steps


def test_a_search_does_not_take_it_and_a_kernel_in_it_is_not_exported(tmp_path: Path) -> None:
    with client_of(settings_for(tmp_path)) as client:
        seed(database(client))
        body = {"op_id": "op_seed", "target": "cpu", "language": "python", "model": {"provider": "agent"}}
        refused = problem(client.post("/v1/searches", json=body), 422, "invalid-input")
        assert fields(refused) == ["language"]
        assert "free Python is of the sandbox tier, and judged alone (warpsmith judge)" in refused["detail"]
        with database(client).writing() as session:
            session.get_one(KernelRow, "kn_0").language = "python"
        refused = problem(client.get("/v1/kernels/kn_0/export"), 422, "invalid-input")
        assert fields(refused) == ["path.kernel_id"]
        assert "a kernel whose host code a gate has read" in refused["detail"]


def test_a_search_keeps_none(tmp_path: Path) -> None:
    """The same search keeps its winner where that is C++."""
    for language in ("cpp", "python"):
        db = Database(f"sqlite:///{tmp_path / language}.db")
        db.upgrade()
        driver = Driver(db, create(db))
        driver.decide = small_policy(ideas=1, codes=1)
        driver.luck.random = lambda: 1.0  # type: ignore[method-assign]
        work = driver.until("verify")
        with db.writing() as session:
            session.get_one(NodeRow, work.node.id).language = language
        good = verdict("verify", score=1.05, low=1.01)
        assert steps.complete_judge(db, work.attempt_id, "me", good, driver.now)
        driver.advance()
        with db.reading() as session:
            assert len(session.scalars(select(KernelRow)).all()) == (language == "cpp")
        db.dispose()
