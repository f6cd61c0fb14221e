"""A profile of a node on request: from the asking over the worker to the table."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient
from sqlalchemy import TextClause, select, text

from tests.services import migrate
from tests.support import api_support
from tests.support.steps_support import Driver, create, verdict
from tests.support.tried import RIGHT, Here
from warpsmith.kernels_db.job.documents import Verdict
from warpsmith.kernels_db.store.db import Database
from warpsmith.kernels_db.store.profiles import SEND_AGAIN_S, ask_profile, claim_profile, finish_profile, latest_profile
from warpsmith.kernels_db.store.tables import NodeRow, ProfileRow, SearchRow
from warpsmith.service.cli import run
from warpsmith.workers.judge.protocol.client import JudgeDied, JudgeUnfit
from warpsmith.workers.queue.process import WorkerProcess
from warpsmith.workers.queue.profile_task import perform_profile
from warpsmith.workers.settings import Settings
from warpsmith.workers.steps.rows import lock_search

ROW = {"name": "run", "kind": "region", "count": 5, "total_us": 10.0, "mean_us": 2.0}
TRACE: dict[str, Any] = {"displayTimeUnit": "ms", "traceEvents": []}
PROFILED = verdict(
    "profile",
    "ambiguous",
    device={"name": "Example CPU"},
    profile={"workload": "large", "calls": 5, "rows": [ROW], "trace": TRACE},
)


def coded(db: Database, source: str = RIGHT) -> NodeRow:
    """A node with this source, in a search of its own."""
    driver = Driver(db, create(db))
    node = driver.until("judge").node
    with db.writing() as session:
        row = session.get_one(NodeRow, node.id)
        row.source = source
    return row


def test_a_profile_is_asked_for_taken_and_finished_once(db: Database) -> None:
    node = coded(db)
    with db.writing() as session:
        row, announce = ask_profile(session, node.id, 1000.0)
        again, repeated = ask_profile(session, node.id, 1001.0)
        assert (again.id, announce, repeated) == (row.id, True, False)
    with db.writing() as session:
        assert ask_profile(session, node.id, 1001.0 + SEND_AGAIN_S)[1]  # its message may be lost
        assert not ask_profile(session, node.id, 1002.0 + SEND_AGAIN_S)[1]
    with db.writing() as session:
        work = claim_profile(session, row.id, "me", 900.0, 1100.0)
        assert work is not None
        assert (work.source, work.language, work.target) == (RIGHT, "cpp", "cpu:x86_64")
        assert claim_profile(session, row.id, "other", 900.0, 1100.0) is None
        assert claim_profile(session, "pf_unknown", "me", 900.0, 1100.0) is None
        running, announce = ask_profile(session, node.id, 1500.0)
        assert (running.id, announce) == (row.id, False)
    with db.writing() as session:
        assert not finish_profile(session, row.id, "other", "failed", {"reason": "not its own"}, 1550.0)
        assert finish_profile(session, row.id, "me", "done", {"rows": [ROW]}, 1550.0, TRACE)
        assert not finish_profile(session, row.id, "me", "failed", {"reason": "too late"}, 1551.0)
    with db.writing() as session:
        latest = latest_profile(session, node.id)
        assert latest is not None
        assert (latest.state, latest.document, latest.trace) == ("done", {"rows": [ROW]}, TRACE)
        assert (latest.tries, latest.started_at, latest.finished_at) == (1, 1100.0, 1550.0)
        assert ask_profile(session, node.id, 1600.0)[0].id != row.id


def test_a_worker_that_died_costs_asking_once_more(db: Database) -> None:
    node = coded(db)
    with db.writing() as session:
        lost, _ = ask_profile(session, node.id, 1000.0)
        assert claim_profile(session, lost.id, "me", 900.0, 1100.0) is not None
        fresh, announce = ask_profile(session, node.id, 2001.0)
        assert (fresh.id != lost.id, announce) == (True, True)


def test_the_root_has_no_profile(db: Database) -> None:
    root = Driver(db, create(db)).nodes()[0]
    with db.writing() as session:
        with pytest.raises(ValueError, match="the root"):
            ask_profile(session, root.id, 1.0)
        with pytest.raises(LookupError, match="expected the id of a node"):
            ask_profile(session, "nd_0", 1.0)


@pytest.mark.parametrize(
    ("answer", "state", "reason"),
    [
        (PROFILED, "done", None),
        (verdict("profile", "rejected", reason="line 3: it does not compile"), "failed", "line 3: it does not compile"),
        (JudgeDied("the judge ended"), "failed", "the judge ended"),
        (RuntimeError("a fault of ours"), "failed", "RuntimeError: a fault of ours"),
    ],
)
def test_what_came_of_it_is_stored_and_the_search_is_as_it_was(
    db: Database, tmp_path: Path, answer: Verdict | Exception, state: str, reason: str | None
) -> None:
    node = coded(db)
    with db.writing() as session:
        before = session.get_one(SearchRow, node.search_id).updated_at
        profile_id = ask_profile(session, node.id, time.time())[0].id
    here = Here(db, answer, tmp_path)
    perform_profile(here, profile_id)
    perform_profile(here, profile_id)  # its message came twice
    assert [(job["level"], job["target"]) for job in here.double.jobs] == [("profile", "cpu:x86_64")]
    with db.reading() as session:
        row = session.get_one(ProfileRow, profile_id)
        assert (row.state, row.document.get("reason")) == (state, reason)
        assert (row.trace is not None) == (state == "done")
        after = session.get_one(NodeRow, node.id)
        assert (after.state, after.verdict, after.score) == (node.state, node.verdict, node.score)
        assert session.get_one(SearchRow, node.search_id).updated_at == before


def test_a_profile_that_was_made_without_the_device_is_none(
    db: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended: list[str] = []
    monkeypatch.setattr("warpsmith.workers.queue.process.end_worker", lambda: ended.append("ended"))
    node = coded(db)
    with db.writing() as session:
        lost, late = ask_profile(session, node.id, time.time())[0].id, "the device is lost"
    here = Here(db, JudgeUnfit("device", late), tmp_path)
    perform_profile(here, lost)
    assert (here.ill, ended) == (f"the judge's host cannot judge, device: {late}", ["ended"])
    with db.reading() as session:
        row = session.get_one(ProfileRow, lost)
        assert (row.state, row.document["reason"]) == ("failed", here.ill)


@pytest.mark.nightly
def test_a_real_judge_makes_a_real_profile(tmp_path: Path) -> None:
    settings = Settings(home=tmp_path)
    here = WorkerProcess(settings)
    try:
        migrate(here.db)
        node = coded(here.db)
        with here.db.writing() as session:
            profile_id = ask_profile(session, node.id, time.time())[0].id
        perform_profile(here, profile_id)
        with here.db.reading() as session:
            row = session.get_one(ProfileRow, profile_id)
        assert row.state == "done", row.document
        counts = {entry["name"]: entry["count"] for entry in row.document["rows"]}
        assert counts == {"run": 5, "kernels.add_relu": 5}
        assert row.document["workload"] == "large"
        assert row.trace is not None
    finally:
        here.close()


@pytest.fixture
def client(tmp_path: Path) -> Iterator[TestClient]:
    with api_support.client_of(api_support.settings_for(tmp_path)) as found:
        yield found


def test_the_api_asks_and_answers(client: TestClient, tmp_path: Path) -> None:
    db = api_support.database(client)
    node = coded(db)
    path = f"/v1/nodes/{node.id}/profile"
    assert client.get(path).status_code == 404
    asked = client.post(path)
    assert (asked.status_code, asked.headers["Location"], asked.json()["state"]) == (202, path, "pending")
    assert client.post(path).json()["id"] == asked.json()["id"]
    perform_profile(Here(db, PROFILED, tmp_path), asked.json()["id"])
    found = client.get(path).json()
    assert (found["state"], found["device"], found["workload"], found["said_by"]) == (
        "done",
        "Example CPU",
        "large",
        "runner",
    )
    assert found["rows"] == [{**ROW, "launch": None}]
    assert found["trace"] is None
    assert client.get(path, params={"trace": True}).json()["trace"] == TRACE
    root = client.post(f"/v1/nodes/{Driver(db, node.search_id).nodes()[0].id}/profile")
    assert (root.status_code, root.json()["type"]) == (409, "urn:warpsmith:problem:wrong-state")
    assert client.post("/v1/nodes/nd_0/profile").status_code == 404


@pytest.mark.parametrize("answer", [PROFILED, verdict("profile", "rejected", reason="it does not compile")])
def test_the_command_waits_for_a_worker(tmp_path: Path, capsys: pytest.CaptureFixture[str], answer: Verdict) -> None:
    app = api_support.application(api_support.settings_for(tmp_path))
    db = app.state.service.db
    node = coded(db)
    stop = threading.Event()

    def work() -> None:
        while not stop.wait(0.02):
            with db.reading() as session:
                row = session.scalar(select(ProfileRow))
            if row is not None:
                perform_profile(Here(db, answer, tmp_path), row.id)
                return

    worker = threading.Thread(target=work)
    worker.start()
    file = tmp_path / "trace.json"
    try:
        with api_support.served(app) as url:
            code = run(["profile", node.id, "--url", url, "--trace", str(file), "--wait", "60"])
    finally:
        stop.set()
        worker.join()
    said = capsys.readouterr()
    if answer is PROFILED:
        assert code == 0
        assert "5 calls on large, Example CPU" in said.out
        assert json.loads(file.read_text()) == TRACE
    else:
        assert code == 1
        assert "it does not compile" in said.err
        assert not file.exists()


def test_without_a_worker_the_command_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    app = api_support.application(api_support.settings_for(tmp_path))
    node = coded(app.state.service.db)
    with api_support.served(app) as url:
        assert run(["profile", node.id, "--url", url, "--wait", "0"]) == 1
    assert "is a judge worker up" in capsys.readouterr().err


@pytest.mark.parametrize("db", ["postgresql"], indirect=True)
def test_asking_takes_its_locks_in_the_order_of_every_step(db: Database) -> None:
    """A step locks its search, then writes to its node: who asks for a profile meanwhile waits, and neither dies."""
    node = coded(db)
    asked: list[str] = []

    def ask() -> None:
        with db.writing() as session:
            asked.append(ask_profile(session, node.id, 5.0)[0].id)

    waits = text(
        "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
    )
    asking = threading.Thread(target=ask)
    with db.writing() as session:
        lock_search(session, node.search_id)
        asking.start()
        end = time.monotonic() + 30.0
        while _waiting(db, waits) == 0 and time.monotonic() < end:
            time.sleep(0.01)
        session.get_one(NodeRow, node.id).reason = "written by a step"
        session.flush()
    asking.join(30.0)
    assert len(asked) == 1


def _waiting(db: Database, query: TextClause) -> int:
    with db.reading() as session:
        return int(session.scalar(query) or 0)
