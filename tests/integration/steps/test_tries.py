"""Tries of candidates: asked for, judged by a worker, kept with the node, and paid from seconds of their own."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient
from sqlalchemy import select

from tests.services import migrate
from tests.support import api_support
from tests.support.steps_support import OP, SETTINGS, Driver, create
from tests.support.tried import COMPILED, FAST, RIGHT, Here
from warpsmith.kernels_db.spec.op import Target
from warpsmith.kernels_db.store.db import Database
from warpsmith.kernels_db.store.tables import EventRow, NodeRow, SearchRow, TryRow
from warpsmith.service.cli import run
from warpsmith.workers import steps
from warpsmith.workers.judge.protocol.client import JudgeDied, JudgeTimeout, JudgeUnfit
from warpsmith.workers.queue.process import WorkerProcess
from warpsmith.workers.queue.try_task import perform_try
from warpsmith.workers.search.budget import TRY_SECONDS
from warpsmith.workers.settings import Settings
from warpsmith.workers.steps import WrongState, reconciling
from warpsmith.workers.steps.trying import (
    MOST_OPEN,
    WAITS_S,
    TryLevel,
    ask_try,
    claim_try,
    finish_try,
    reconcile_tries,
    seconds_of_tries,
)


def asked_node(db: Database, **changes: Any) -> NodeRow:
    """A node whose code is asked for, in a search of its own."""
    driver = Driver(db, create(db, **changes))
    return driver.until("code").node  # type: ignore[return-value]  # its id and seq are read


def ask(db: Database, node_id: str, level: TryLevel = "screen", now: float = 1000.0) -> str:
    with db.writing() as session:
        return ask_try(session, node_id, RIGHT, level, now, "an agent")[0].id


def tried(db: Database, try_id: str) -> TryRow:
    with db.reading() as session:
        return session.get_one(TryRow, try_id)


def search_of(db: Database, node_id: str) -> SearchRow:
    with db.reading() as session:
        return session.get_one(SearchRow, session.get_one(NodeRow, node_id).search_id)


def test_a_try_is_judged_and_kept_and_changes_nothing_of_the_tree(db: Database, tmp_path: Path) -> None:
    node = asked_node(db)
    before = search_of(db, node.id)
    try_id = ask(db, node.id, now=db.now())
    here = Here(db, FAST, tmp_path)
    perform_try(here, try_id)
    perform_try(here, try_id)  # its message came twice
    assert [(job["level"], job["target"]) for job in here.double.jobs] == [("screen", "cpu:x86_64")]
    row, after = tried(db, try_id), search_of(db, node.id)
    assert (row.state, row.verdict, row.score, row.device_s, row.asked_by) == ("done", "accepted", 2.5, 7.5, "an agent")
    assert row.source == RIGHT
    assert row.document["workloads"][0]["samples"] == {}
    assert (after.try_seconds, after.gpu_seconds, after.candidates) == (7.5, before.gpu_seconds, before.candidates)
    with db.reading() as session:
        found = session.get_one(NodeRow, node.id)
        assert (found.state, found.verdict, found.source) == ("coding", None, None)
        told = session.scalars(select(EventRow.payload).where(EventRow.type == "node.tried")).one()
    assert told == {
        "seq": found.seq,
        "try_id": try_id,
        "level": "screen",
        "state": "done",
        "verdict": "accepted",
        "score": 2.5,
    }


def test_spent_seconds_refuse_a_try_and_not_one_that_only_compiles(db: Database, tmp_path: Path) -> None:
    node = asked_node(db, budget={"try_seconds": 10})
    perform_try(Here(db, FAST, tmp_path), ask(db, node.id, now=db.now()))
    last, waiting = ask(db, node.id, now=db.now()), ask(db, node.id, now=db.now())
    perform_try(Here(db, FAST, tmp_path), last)
    assert seconds_of_tries(search_of(db, node.id)) == (15.0, 10)
    with pytest.raises(WrongState, match=r"try_seconds: found 15.0 of 10 device seconds spent.*--tries 20m"):
        ask(db, node.id, now=db.now())
    here = Here(db, COMPILED, tmp_path)
    perform_try(here, waiting)  # it was asked for before they were spent
    assert here.double.jobs == []
    assert (tried(db, waiting).state, "10 device seconds" in str(tried(db, waiting).reason)) == ("failed", True)
    free = ask(db, node.id, "compile", now=db.now())
    perform_try(here, free)
    assert (tried(db, free).state, tried(db, free).gate) == ("done", "compile")


def test_without_a_limit_there_is_a_default(db: Database) -> None:
    assert seconds_of_tries(search_of(db, asked_node(db).id)) == (0.0, TRY_SECONDS)


def test_few_tries_of_a_search_wait_at_once_and_none_of_one_that_ended(db: Database) -> None:
    node = asked_node(db)
    waiting = [ask(db, node.id) for _ in range(MOST_OPEN)]
    with pytest.raises(WrongState, match=f"fewer than {MOST_OPEN}"):
        ask(db, node.id)
    ask(db, node.id, "compile")  # each answer asks for one: they count apart
    assert claim_try(db, waiting[1], "me", 30.0, 1001.0) is not None
    steps.cancel(db, search_of(db, node.id).id, 1001.0)
    assert claim_try(db, waiting[0], "me", 30.0, 1002.0) is None
    assert (tried(db, waiting[0]).state, tried(db, waiting[0]).reason) == ("failed", "the search ended first")
    assert tried(db, waiting[1]).state == "running", "its judge may still answer"
    assert finish_try(db, waiting[1], "me", FAST, "right", 1003.0)
    with pytest.raises(WrongState, match="warpsmith judge"):
        ask(db, node.id)
    with pytest.raises(LookupError, match="expected the id of a node"):
        ask(db, "nd_0")


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (JudgeTimeout("no verdict in time"), "the judge gave no verdict: no verdict in time"),
        (RuntimeError("a fault of ours"), "RuntimeError: a fault of ours"),
    ],
)
def test_one_without_a_verdict_says_why(db: Database, tmp_path: Path, answer: Exception, reason: str) -> None:
    try_id = ask(db, asked_node(db).id, now=db.now())
    perform_try(Here(db, answer, tmp_path), try_id)
    row = tried(db, try_id)
    assert (row.state, row.verdict, row.reason) == ("failed", None, reason)


def test_a_candidate_that_hangs_costs_the_seconds_that_it_took(db: Database) -> None:
    node = asked_node(db)
    try_id = ask(db, node.id)
    assert claim_try(db, try_id, "me", 30.0, 1000.0) is not None
    assert not finish_try(db, try_id, "other", None, "not its own", 1600.0, 600.0)
    assert finish_try(db, try_id, "me", None, "no verdict", 1600.0, 600.0)
    assert not finish_try(db, try_id, "me", FAST, "too late", 1601.0)
    assert search_of(db, node.id).try_seconds == 600.0


def test_what_a_crash_lost_comes_back_and_not_for_ever(db: Database, tmp_path: Path) -> None:
    node = asked_node(db)
    try_id = ask(db, node.id)
    assert reconcile_tries(db, 1001.0, SETTINGS) == []
    [again] = reconcile_tries(db, 1020.0, SETTINGS)  # its message was lost
    assert (again.attempt_id, again.queue) == (try_id, "judge.cpu-x86_64")
    now = 1020.0
    for _ in range(SETTINGS.max_tries):
        assert claim_try(db, try_id, "a worker that dies", 30.0, now) is not None
        now += 31.0
        sent = reconcile_tries(db, now, SETTINGS)
    assert sent == []
    assert "3 tries: the judge or its worker died" in str(tried(db, try_id).reason)
    lonely = ask(db, node.id, now=now)
    assert reconcile_tries(db, now + WAITS_S + 1.0, SETTINGS) == []
    assert tried(db, lonely).reason == f"no judge of cpu:x86_64 took it within {WAITS_S:g} s"
    died = ask(db, node.id, now=db.now())
    perform_try(Here(db, JudgeDied("it ended"), tmp_path), died)
    assert tried(db, died).state == "running", "the reconciler returns it, and counts the try"


def test_a_full_disk_counts_against_no_try(db: Database, tmp_path: Path) -> None:
    try_id = ask(db, asked_node(db).id, now=db.now())
    for _ in range(SETTINGS.max_tries + 1):
        perform_try(Here(db, JudgeUnfit("disk", "no room"), tmp_path), try_id)
        row = tried(db, try_id)
        assert (row.state, row.tries) == ("pending", 0)


def test_a_verdict_that_was_made_without_the_device_is_dropped(db: Database, tmp_path: Path) -> None:
    try_id = ask(db, asked_node(db).id, now=db.now())
    here = Here(db, FAST, tmp_path)
    here.ill = "another job lost the GPU"
    perform_try(here, try_id)
    assert (tried(db, try_id).state, tried(db, try_id).verdict) == ("running", None), "the reconciler returns it"


def test_a_search_that_was_deleted_meanwhile_stops_no_round(db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reconciling, "_searches", lambda *_: ["sr_gone"])
    assert reconciling.reconcile(db, 1000.0, SETTINGS) == []


@pytest.fixture
def client(tmp_path: Path) -> Iterator[TestClient]:
    with api_support.client_of(api_support.settings_for(tmp_path)) as found:
        yield found


def test_the_api_takes_a_try_and_tells_what_came_of_it(client: TestClient, tmp_path: Path) -> None:
    db = api_support.database(client)
    node = asked_node(db)
    asked = client.post(f"/v1/nodes/{node.id}/tries", json={"source": RIGHT, "asked_by": "me"})
    assert (asked.status_code, asked.json()["state"]) == (202, "pending")
    path = asked.headers["Location"]
    perform_try(Here(db, FAST, tmp_path), asked.json()["id"])
    found = client.get(path).json()
    assert (found["state"], found["verdict"], found["score"], found["asked_by"]) == ("done", "accepted", 2.5, "me")
    assert (found["spent_s"], found["limit_s"], found["device_s"]) == (7.5, TRY_SECONDS, 7.5)
    assert "large" in found["feedback"]
    assert [one["id"] for one in found["workloads"]] == ["large"]
    [listed] = client.get(f"/v1/nodes/{node.id}/tries").json()["items"]
    [in_node] = client.get(f"/v1/nodes/{node.id}").json()["tries"]
    assert listed == in_node
    assert listed.items() <= found.items()
    search = client.get(f"/v1/searches/{found['search_id']}").json()
    assert search["spend"]["try_seconds"] == 7.5
    story = client.get(f"/v1/searches/{found['search_id']}/story").json()
    assert "1 try before answers, for 1 node: 1 right, 7.5 s on the device." in story["text"].replace("\n", " ")
    refused = client.post(f"/v1/nodes/{node.id}/tries", json={"source": RIGHT, "level": "verify"})
    assert refused.status_code == 422
    assert client.post("/v1/nodes/nd_0/tries", json={"source": RIGHT}).status_code == 404
    assert client.get("/v1/tries/ty_0").status_code == 404


def test_the_command_waits_for_the_verdict_and_the_node_shows_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    app = api_support.application(api_support.settings_for(tmp_path))
    db = app.state.service.db
    node = asked_node(db)
    file, spec = tmp_path / "reply.md", tmp_path / "op.json"
    file.write_text(f"Here it is.\n\n```python\n{RIGHT}```\n")
    spec.write_text(json.dumps(OP.document()))
    stop = threading.Event()

    def work() -> None:
        while not stop.wait(0.02):
            with db.reading() as session:
                waiting = session.scalars(select(TryRow.id).where(TryRow.state == "pending")).all()
            for try_id in waiting:
                perform_try(Here(db, FAST, tmp_path), try_id)

    worker = threading.Thread(target=work)
    worker.start()
    try:
        with api_support.served(app) as url:
            assert run(["try", node.id, str(file), "--url", url, "--by", "me"]) == 0
            said = capsys.readouterr()
            assert "screen accepted 2.50x, 7.5 s on the device" in said.out
            assert "7.5 of 300 s" in said.err
            assert run(["try", str(spec), str(file), "--url", url, "--json"]) == 0
            found = json.loads(capsys.readouterr().out)
            assert found["source"] == RIGHT
            assert run(["node", node.id, "--url", url]) == 0
            shown = capsys.readouterr().out
            assert "try      ty_" in shown
            assert "screen accepted 2.50x" in shown
            assert run(["try", str(tmp_path), str(file), "--url", url]) == 2
            assert "expected an ask (ak_...), a node" in capsys.readouterr().err.replace("\n", " ")
    finally:
        stop.set()
        worker.join()


@pytest.mark.alone
@pytest.mark.nightly
def test_a_real_judge_tries_a_real_candidate(tmp_path: Path) -> None:
    here = WorkerProcess(Settings(home=tmp_path))
    try:
        migrate(here.db)
        search_id = steps.create_search(
            here.db,
            OP,
            Target.parse("cpu"),
            language="cpp",
            now=here.db.now(),
            policy={"name": "idea_beam"},
            budget={},
            model={"provider": "agent"},
        )
        with here.db.reading() as session:
            root = session.scalars(select(NodeRow.id).where(NodeRow.search_id == search_id)).one()
        broken = RIGHT.replace("int64_t i", "int64_tt i")
        with here.db.writing() as session:
            ids = [
                ask_try(session, root, source, level, here.db.now())[0].id
                for source, level in ((RIGHT, "compile"), (broken, "compile"), (RIGHT, "screen"), (RIGHT, "profile"))
            ]
        for try_id in ids:
            perform_try(here, try_id)
        compiled, refused, screened, profiled = (tried(here.db, each) for each in ids)
        assert (compiled.verdict, compiled.gate, compiled.device_s) == ("ambiguous", "compile", 0.0)
        assert (refused.verdict, refused.gate) == ("rejected", "compile")
        assert screened.verdict == "accepted", screened.reason
        assert screened.device_s > 0
        assert profiled.document["profile"]["rows"], profiled.reason
        assert search_of(here.db, root).try_seconds == pytest.approx(sum(tried(here.db, each).device_s for each in ids))
    finally:
        here.close()
