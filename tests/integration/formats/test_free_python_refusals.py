"""Free Python is judged alone: no search takes or keeps it, and it is not exported. And what `import --op` refuses."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from sqlalchemy import select

from tests.services import migrate
from tests.support.api_support import (
    application,
    client_of,
    command_line,
    database,
    fields,
    problem,
    seed,
    settings_for,
)
from tests.support.formats_support import EXAMPLES, files_of
from tests.support.steps_support import Driver, create, small_policy, verdict
from warpsmith.kernels_db.formats.op_import import import_op
from warpsmith.kernels_db.store.db import Database
from warpsmith.kernels_db.store.records import add_op
from warpsmith.kernels_db.store.tables import KernelRow, NodeRow
from warpsmith.workers import steps


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
        migrate(db)
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


def test_a_solution_for_a_stored_op_is_written_as_a_candidate(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = EXAMPLES / "flashinfer-bench"
    problem_path = bench / "definitions" / "rmsnorm" / "rmsnorm_h1024.json"
    solution = bench / "solutions" / "rmsnorm" / "rmsnorm_h1024_in_place.json"
    op = import_op(files_of(problem_path), None, None).op
    app = application(settings_for(tmp_path))
    with command_line(app, capsys, monkeypatch) as run_it:
        with app.state.service.db.writing() as session:
            row, _ = add_op(session, op)
            stored = row.id
        written = tmp_path / "candidate.py"
        asked = ("import", str(solution), "--op", stored, "--output", str(written))
        code, out, err = run_it(*asked, "--json")
        assert code == 0, err
        assert json.loads(out)["output"] == str(written)
        assert "def run(hidden_states, weight, output):" in written.read_text()
        written.write_text("something else")
        code, _, err = run_it(*asked)
        assert (code, "expected a new file; --force replaces it" in err) == (1, True)
        assert written.read_text() == "something else"
        for more, words in {
            ("--store",): "a candidate is not stored, but judged",
            ("--format", "pool"): "one of kernelbench, flashinfer-bench, gpu-mode for a candidate",
            (str(problem_path),): "one file: a ModelNew, a Solution or a submission",
        }.items():
            code, _, err = run_it(*asked, *more)
            assert (code, words in err) == (2, True), err
        code, _, err = run_it("import", str(solution), "--op", "nowhere.yaml")
        assert code == 2
        assert "found 'nowhere.yaml', expected a spec file that exists, or the id (op_...) or name of an op" in err
