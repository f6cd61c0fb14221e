"""What the API's tests share: an application on a database of its own, a served one, a search with a tree."""

from __future__ import annotations

import io
import os
import socket
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import uvicorn
from fastapi import FastAPI
from fastapi.testclient import TestClient

from tests.services import migrate
from warpsmith.kernels_db.job.envelope import build_envelope
from warpsmith.kernels_db.spec.op import Op, Target, load_op
from warpsmith.kernels_db.spec.resolve import resolve_workload
from warpsmith.kernels_db.store.db import Database
from warpsmith.kernels_db.store.tables import (
    AskRow,
    AttemptRow,
    EventRow,
    KernelRow,
    ModelCallRow,
    NodeRow,
    OpRow,
    SearchRow,
    VerdictRow,
    WorkerRow,
)
from warpsmith.service.cli import run
from warpsmith.service.server.app import create_app
from warpsmith.service.settings import ServiceSettings
from warpsmith.workers import imports, log
from warpsmith.workers.gate.normalise import normalised_digest
from warpsmith.workers.settings import Settings

BASE_URL = "http://127.0.0.1:8420"
ENDPOINT = "http://127.0.0.1:9/v1"
"""An endpoint that searches may name, where nothing listens."""

ADD_RELU = """
schema_version: 1
name: add_relu
axes:
  n: {kind: var}
inputs:
  - {name: x, shape: [n], dtype: float32}
  - {name: y, shape: [n], dtype: float32}
outputs:
  - {name: out, shape: [n], dtype: float32}
reference: |
  import torch
  def run(x, y):
      return torch.relu(x + y)
workloads:
  - {id: large, role: bench, axes: {n: 65536}}
  - {id: ragged, role: test, axes: {n: 1021}}
"""
SPEC: dict[str, Any] = load_op(ADD_RELU).document()
SEARCH: dict[str, Any] = {"op": SPEC, "target": "cpu", "model": {"provider": "agent"}, "budget": {"candidates": 4}}
TIMES = {"candidate": 50.0, "eager": 150.0, "compile": 100.0}
CANDIDATE = "# eight lanes\ndef run(x, y, out):\n    pass\n"
HOSTILE = "<script>alert('x')</script>"


def settings_for(home: Path, **values: Any) -> ServiceSettings:
    """Settings of an API with a database of its own and no broker: searches stay queued."""
    usual = {"broker_url": f"redis+socket://{home / 'absent.sock'}", "model_endpoints": [ENDPOINT]}
    return ServiceSettings(home=home, **{**usual, **values})


def application(settings: ServiceSettings) -> FastAPI:
    """The application on an upgraded database."""
    app = create_app(settings)
    migrate(app.state.service.db)
    return app


@contextmanager
def client_of(settings: ServiceSettings, **headers: str) -> Iterator[TestClient]:
    """A client in the application's own process."""
    with TestClient(application(settings), base_url=BASE_URL, headers=headers, raise_server_exceptions=False) as client:
        yield client


def database(client: TestClient) -> Database:
    """The database of the client's application."""
    app: Any = client.app
    db: Database = app.state.service.db
    return db


Said = Callable[..., tuple[int, str, str]]


@contextmanager
def command_line(app: FastAPI, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Iterator[Said]:
    """Commands in this process against a served application: exit code, standard output, standard error."""
    with served(app) as url:
        monkeypatch.setenv("WARPSMITH_URL", url)
        # A service has a standard error of its own: its lines are none of the command's.
        log.configure(app.state.service.settings, io.StringIO())

        def run_it(*arguments: str) -> tuple[int, str, str]:
            capsys.readouterr()
            code = run(list(arguments))
            captured = capsys.readouterr()
            return code, captured.out, captured.err

        yield run_it


@contextmanager
def served(app: FastAPI) -> Iterator[str]:
    """The URL of the application behind a real server on a free port of the loopback address."""
    # The protocol is named: asyncio turns Nagle's algorithm off only where it is, and answers take 40 ms otherwise.
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP) as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(128)
        config = uvicorn.Config(app, log_config=None, timeout_graceful_shutdown=1)
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
        thread.start()
        deadline = time.monotonic() + 60
        while not server.started:
            if time.monotonic() > deadline or not thread.is_alive():
                pytest.fail("the server did not start")
            time.sleep(0.01)
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join(timeout=60)
            assert not thread.is_alive()


def problem(response: Any, status: int, slug: str) -> dict[str, Any]:
    """The problem document of `response`, after checking what every problem has."""
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/problem+json"
    document: dict[str, Any] = response.json()
    assert document["type"] == f"urn:warpsmith:problem:{slug}"
    assert document["status"] == status
    assert document["title"]
    assert document["detail"]
    return document


def fields(document: dict[str, Any]) -> list[str]:
    """The names of the bad fields."""
    return [error["field"] for error in document["errors"]]


def envelope_of(op: Op) -> dict[str, Any]:
    """The envelope of a kernel that was verified on every workload."""
    workloads = [resolve_workload(op, each) for each in op.workloads_for(Target.parse("cpu:x86_64"))]
    return build_envelope(op.digest, "cpu:x86_64", workloads, {"torch": "2.13.0"})


def workload(name: str, role: str, times: dict[str, float]) -> dict[str, Any]:
    """One workload of a verdict document."""
    ratios = {k: v / times["candidate"] for k, v in times.items() if k != "candidate"} if "candidate" in times else {}
    return {
        "id": name,
        "role": role,
        "error": {"candidate": 1e-8, "eager": 1e-8, "limit": 6e-8},
        "time_us": times,
        "speedup": ratios,
        "ci95": {k: [v * 0.98, v * 1.02] for k, v in ratios.items()},
        "limit_us": 10.0,
        "limit_by": "bytes",
        "limit_fraction": 0.4,
        "samples": {},
    }


def seed(db: Database, *, state: str = "running") -> str:
    """A search two rounds in: a root with baselines, an accepted node, a rejected one with hostile text. Its id."""
    now = time.time()
    op = load_op(ADD_RELU)
    search_id, root, good, bad = "sr_seed", "nd_root", "nd_good", "nd_bad"
    common = {"search_id": search_id, "created_at": now, "updated_at": now}
    evidence = {"workloads": [workload("large", "bench", TIMES)], "device": {"name": "a test"}}
    with db.writing() as session:
        session.add(OpRow(id="op_seed", name=op.name, digest=op.digest, spec=op.document(), created_at=now))
        session.flush()
        session.add(
            SearchRow(
                id=search_id,
                op_id="op_seed",
                target="cpu:x86_64",
                language="cpp",
                policy={"name": "idea_beam"},
                budget={"candidates": 12},
                model={"provider": "agent"},
                state=state,
                best_node_id=good,
                round=2,
                next_seq=3,
                candidates=2,
                model_calls=3,
                tokens=1200,
                cost_usd=0.25,
                active_s=61.0,
                created_at=now,
                updated_at=now,
            )
        )
        session.flush()
        session.add(
            NodeRow(id=root, seq=0, round=0, state="judged", verdict="accepted", gate="time", ideation="done", **common)
        )
        session.add(
            NodeRow(
                id=good,
                seq=1,
                parent_id=root,
                round=1,
                technique="vectorize",
                state="judged",
                verdict="accepted",
                idea={"title": "Eight lanes at once", "technique": "vectorize", "mechanism": "wider loads"},
                gate="time",
                language="cpp",
                source=CANDIDATE,
                score=2.0,
                ci_low=1.9,
                ci_high=2.1,
                limit_fraction=0.4,
                **common,
            )
        )
        session.add(
            NodeRow(
                id=bad,
                seq=2,
                parent_id=good,
                round=2,
                technique="fuse",
                state="judged",
                verdict="rejected",
                idea={"title": HOSTILE, "technique": "fuse", "mechanism": HOSTILE},
                gate="screen",
                reason=HOSTILE,
                language="cpp",
                source=HOSTILE,
                **common,
            )
        )
        session.flush()
        for number, (node, kind, status) in enumerate(
            [
                (root, "judge", "succeeded"),
                (good, "judge", "succeeded"),
                (bad, "code", "running"),
                (bad, "judge", "pending"),
            ]
        ):
            session.add(
                AttemptRow(
                    id=f"at_{number}",
                    search_id=search_id,
                    node_id=node,
                    kind=kind,
                    ordinal=0,
                    params={},
                    state=status,
                    created_at=now,
                )
            )
        session.flush()
        verdicts = {
            "vd_0": (root, "at_0", "baseline", [workload("large", "bench", {"eager": 150.0, "compile": 100.0})]),
            "vd_1": (good, "at_1", "screen", [workload("large", "bench", TIMES)]),
        }
        for verdict_id, (node, attempt, level, workloads) in verdicts.items():
            session.add(
                VerdictRow(
                    id=verdict_id,
                    search_id=search_id,
                    node_id=node,
                    attempt_id=attempt,
                    level=level,
                    verdict="accepted",
                    gate="time",
                    document={"reason": "fine", "workloads": workloads, "failure": None},
                    created_at=now,
                )
            )
        session.add(
            ModelCallRow(
                id="mc_0",
                search_id=search_id,
                node_id=bad,
                attempt_id="at_2",
                kind="code",
                request="a" * 64,
                provider="agent",
                messages=[{"role": "user", "content": HOSTILE}],
                reply=HOSTILE,
                created_at=now,
            )
        )
        session.add(
            AskRow(
                id="ak_0",
                search_id=search_id,
                node_id=bad,
                attempt_id="at_2",
                kind="code",
                request="b" * 64,
                messages=[{"role": "user", "content": "write code"}],
                state="open",
                created_at=now,
            )
        )
        session.add(
            KernelRow(
                id="kn_0",
                op_id="op_seed",
                target="cpu:x86_64",
                search_id=search_id,
                node_id=good,
                language="cpp",
                source=CANDIDATE,
                source_digest=normalised_digest(CANDIDATE),
                score=2.0,
                ci_low=1.9,
                ci_high=2.1,
                limit_fraction=0.4,
                envelope=envelope_of(op),
                evidence=evidence,
                lineage=[],
                created_at=now,
            )
        )
        session.add(
            WorkerRow(
                name="model@here", role="model", target=None, facts={"host": "here"}, started_at=now - 60, seen_at=now
            )
        )
        session.add(
            WorkerRow(
                name="judge@here", role="judge", target="cpu:x86_64", facts={}, started_at=now - 60, seen_at=now - 3600
            )
        )
    add_events(db, search_id, "search.created", "search.started", "round.started")
    return search_id


def add_events(db: Database, search_id: str, *types: str) -> None:
    """Append events, and end the search with the event that says so."""
    with db.writing() as session:
        for kind in types:
            session.add(EventRow(search_id=search_id, type=kind, payload={"said": kind}, created_at=time.time()))
            if kind == "search.finished":
                session.get_one(SearchRow, search_id).state = "finished"


def read_imports(db: Database) -> None:
    """Do the imports that wait, as a model worker does them."""
    settings = Settings(home=Path(os.devnull).parent)
    while (work := imports.take(db, f"a test:{uuid.uuid4().hex}", 60.0, db.now())) is not None:
        assert imports.carry_out(db, work, settings, db.now, lambda: None)


@contextmanager
def import_worker(db: Database) -> Iterator[None]:
    """A model worker, for imports alone, in a thread of this process."""
    ended = threading.Event()

    def work() -> None:
        while not ended.wait(0.02):
            read_imports(db)

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def imported(client: TestClient, response: Any) -> dict[str, Any]:
    """The document of the import that `response` announces, after it has been read."""
    assert response.status_code == 202, response.text
    assert response.headers["location"] == f"/v1/imports/{response.json()['id']}"
    read_imports(database(client))
    document: dict[str, Any] = client.get(response.headers["location"]).json()
    return document
