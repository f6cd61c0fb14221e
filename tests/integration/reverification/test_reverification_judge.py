"""Stored kernels judged anew by a real judge on the CPU: one that holds, and each way of having drifted; and what a
reader sees of it through the API and the command line."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi import FastAPI
from sqlalchemy import select

from tests.support import api_support, scenario
from tests.support.api_support import Said, problem
from tests.support.reverifying import history, keep, kernel
from warpsmith.kernels_db.store.db import Database
from warpsmith.kernels_db.store.tables import KernelRow, ReverificationRow
from warpsmith.service.cli.commands import reverify as command
from warpsmith.service.cli.commands.reverify import WORDS, _await_all
from warpsmith.service.client.http import Client
from warpsmith.service.documents.reverifications import ReverificationDocument
from warpsmith.workers.gate.normalise import normalised_digest
from warpsmith.workers.queue.process import WorkerProcess
from warpsmith.workers.queue.reverification_task import perform_reverification
from warpsmith.workers.reverification import OPEN, Finding, claim, finish
from warpsmith.workers.settings import Settings

SLOW = (
    "for (int r = 0; r < 4000; ++r) for (int64_t i = 0; i < n; ++i) {\n"
    "    volatile float kept = x[i] * 2.0f + 1.0f;\n    y[i] = kept;\n  }"
)
"""Right, and eight times as many passes as the reference takes, none of which the compiler may leave out."""

STORED = {
    "holds": scenario.candidate(scenario.LOOP),
    "wrong": scenario.candidate(scenario.WRONG),
    "slower": scenario.candidate(SLOW),
    "uncompilable": scenario.candidate(scenario.BROKEN),
}
"""The source that stands in the kernel's row, by what is to be found of it."""


class Library:
    """An API on a database with one kernel for each outcome, and a worker with a real judge."""

    def __init__(self, home: Path) -> None:
        self.app: FastAPI = api_support.application(api_support.settings_for(home))
        self.db: Database = self.app.state.service.db
        self.worker = WorkerProcess(Settings(home=home))
        values: dict[str, Any] = {"evidence": {}}
        self.kernels = {name: keep(self.db, scenario.op(), source, **values) for name, source in STORED.items()}

    def work(self) -> None:
        """Do what is open, as the judge worker would."""
        with self.db.reading() as session:
            rows = session.scalars(select(ReverificationRow.id).where(ReverificationRow.state.in_(OPEN))).all()
        for row_id in rows:
            perform_reverification(self.worker, row_id)


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Library]:
    found = Library(tmp_path_factory.mktemp("library"))
    yield found
    found.worker.close()
    found.db.dispose()


@pytest.fixture
def said(library: Library, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Iterator[Said]:
    with api_support.command_line(library.app, capsys, monkeypatch) as run:
        yield run


@pytest.fixture
def working(library: Library) -> Iterator[None]:
    """A judge worker beside the test."""
    stop = threading.Event()

    def run() -> None:
        while not stop.wait(0.05):
            library.work()

    thread = threading.Thread(target=run)
    thread.start()
    yield
    stop.set()
    thread.join(60)


@pytest.mark.alone
@pytest.mark.nightly
@pytest.mark.usefixtures("working")
def test_the_command_tells_what_drifted(library: Library, said: Said) -> None:
    code, out, err = said("reverify", "--target", "cpu", "--op", "scale_shift", "--json")
    assert code == 1, err
    found = {each["kernel_id"]: each for each in json.loads(out)}
    assert {name: found[each]["outcome"] for name, each in library.kernels.items()} == {name: name for name in STORED}
    assert {name: kernel(library.db, each).standing for name, each in library.kernels.items()} == {
        name: name for name in STORED
    }
    holds = found[library.kernels["holds"]]
    assert holds["now"]["speedup"]["eager"] == pytest.approx(holds["now"]["score"])
    assert holds["now"]["ci95"][0] > 1.0
    assert holds["now"]["versions"]["torch"]
    assert found[library.kernels["slower"]]["now"]["ci95"][1] < 1.0
    assert "y[" in found[library.kernels["wrong"]]["reason"]
    assert "two" in found[library.kernels["uncompilable"]]["reason"]
    for name, kernel_id in library.kernels.items():
        [row] = history(library.db, kernel_id)
        assert row.verdict is not None
        assert row.verdict["level"] == "verify"
        assert row.verdict["fingerprint"] == row.fingerprint == holds["now"]["fingerprint"], name
        assert f"{kernel_id}  scale_shift: {WORDS[name]}\n" in err

    with api_support.client_of(library.app.state.service.settings) as client:
        metrics = client.get("/metrics").text
    assert {f'warpsmith_reverifications{{outcome="{name}",state="done"}} 1.0' for name in STORED} <= set(
        metrics.splitlines()
    )

    # What held is exit code 0; a second time is a second row, and the first stays.
    code, out, err = said("reverify", library.kernels["holds"])
    assert code == 0, err
    assert "holds" in out
    assert [row.outcome for row in history(library.db, library.kernels["holds"])] == ["holds", "holds"]

    # Everything was just judged under what is there: nothing is due.
    code, out, err = said("reverify", "--due", "--json")
    assert (code, json.loads(out)) == (0, [])
    assert "no stored kernel matches" in err


def test_readers_see_what_drifted(library: Library, said: Said) -> None:
    with library.db.writing() as session:
        for name, kernel_id in library.kernels.items():  # as the test before leaves them
            session.get_one(KernelRow, kernel_id).standing = name
    with api_support.client_of(library.app.state.service.settings) as client:

        def listed(**query: str) -> set[str]:
            return {item["id"] for item in client.get("/v1/kernels", params=query).json()["items"]}

        assert listed(reverification="holds") == {library.kernels["holds"]}
        assert listed(reverification="drifted") == {library.kernels[name] for name in STORED if name != "holds"}
        assert listed(reverification="slower") == {library.kernels["slower"]}
        assert listed(reverification="verified") == set()
        document = client.get(f"/v1/kernels/{library.kernels['wrong']}").json()
        again = document["reverification"]
        assert (again["state"], again["drifted"], again["under_way"]) == ("wrong", True, None)
        assert client.get("/metrics").text.count('warpsmith_kernels{standing="') == len(STORED)
    code, out, _ = said("kernels")
    assert code == 0
    assert "drifted: slower" in out
    lines = {line.split()[0]: line for line in out.splitlines()}
    assert "drifted" not in lines[library.kernels["holds"]]


def test_the_api_asks_once_and_keeps_the_history(tmp_path: Path) -> None:
    app = api_support.application(api_support.settings_for(tmp_path))
    db = app.state.service.db
    kernel_id, other = (keep(db, scenario.op(), at=float(number)) for number in range(2))
    with api_support.client_of(app.state.service.settings) as client:
        path = f"/v1/kernels/{kernel_id}"
        asked = client.post(f"{path}/reverify")
        document = asked.json()
        where = f"/v1/reverifications/{document['id']}"
        assert (asked.status_code, asked.headers["Location"], document["state"]) == (202, where, "pending")
        assert (document["cause"], document["outcome"], document["verdict"]) == ("asked", None, None)
        assert client.post(f"{path}/reverify").json()["id"] == document["id"]
        assert client.get(path).json()["reverification"]["under_way"] == document["id"]
        assert client.get(where).json() == document
        together = client.post("/v1/kernels/reverify", json={"op": "scale_shift"}).json()
        assert (together["asked"], together["under_way"], together["left"]) == (1, 1, 0)
        assert {item["kernel_id"] for item in together["items"]} == {kernel_id, other}
        few = client.post("/v1/kernels/reverify", json={"limit": 1}).json()
        assert (few["asked"], few["left"], few["items"][0]["kernel_id"]) == (0, 1, kernel_id)
        assert client.post("/v1/kernels/reverify", json={"op": "gelu"}).json()["items"] == []
        [one] = client.get(f"{path}/reverifications").json()["items"]
        assert one == {name: value for name, value in document.items() if name != "verdict"}
        assert client.get("/v1/kernels", params={"due": True}).json()["items"]  # thirty days are over
        problem(client.post("/v1/kernels/kn_0/reverify"), 404, "not-found")
        problem(client.get("/v1/reverifications/rv_0"), 404, "not-found")
        problem(client.get("/v1/kernels/kn_0/reverifications"), 404, "not-found")
        refused = problem(client.post("/v1/kernels/reverify", json={"target": "tpu:v5"}), 422, "invalid-input")
        assert api_support.fields(refused) == ["target"]


@pytest.mark.nightly
def test_what_drifted_leaves_with_a_warning_and_an_op_stands_for_what_holds(
    library: Library, said: Said, tmp_path: Path
) -> None:
    workloads = [api_support.workload(*each, api_support.TIMES) for each in (("even", "bench"), ("odd", "test"))]
    with library.db.writing() as session:
        for name, kernel_id in library.kernels.items():
            row = session.get_one(KernelRow, kernel_id)
            row.standing, row.score = name, 1.0 if name == "holds" else 9.0
            row.evidence = {"workloads": workloads, "device": {"name": "a test"}}
            row.envelope = api_support.envelope_of(scenario.op())
            row.source_digest = normalised_digest(row.source)
    where = ("--output", str(tmp_path), "--no-verify", "--json")
    code, out, err = said("export", "scale_shift", *where)
    assert (code, json.loads(out)["kernel"]) == (0, library.kernels["holds"]), err
    assert "drifted" not in err
    code, _, err = said("export", library.kernels["wrong"], *where)
    assert code == 0, err
    assert f"warning: {library.kernels['wrong']} has drifted (wrong)" in err


def test_each_is_looked_at_in_its_turn_and_all_when_the_time_is_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = api_support.application(api_support.settings_for(tmp_path))
    db = app.state.service.db
    kernels = [keep(db, scenario.op(), at=float(number)) for number in range(3)]
    monkeypatch.setattr(command, "POLLED", 1)
    monkeypatch.setattr(command, "POLL_S", 0.001)
    looked_at: list[str] = []
    with api_support.served(app) as url, Client(url) as client:
        read = client.reverification

        def noted(row_id: str) -> ReverificationDocument:
            """Once each has been looked at, all are done."""
            looked_at.append(row_id)
            if len(looked_at) == len(kernels) + 1:
                for each in asked:
                    assert claim(db, each.id, "me", 30.0, 1.0) is not None
                    assert finish(db, each.id, "me", Finding("holds", "right"), None, 2.0)
            return read(row_id)

        asked = [client.reverify(each) for each in kernels]
        ids = [each.id for each in asked]
        monkeypatch.setattr(client, "reverification", noted)
        assert [each.state for each in _await_all(client, list(asked), 0.0)] == ["pending"] * 3
        assert looked_at == ids
        looked_at.clear()
        assert {each.outcome for each in _await_all(client, list(asked), 60.0)} == {"holds"}
    assert looked_at == [*ids, *ids]


@pytest.mark.nightly
def test_misuse_of_the_command(library: Library, said: Said) -> None:
    code, _, err = said("reverify", library.kernels["holds"], "--due")
    assert code == 2
    assert "--due" in err
    code, _, err = said("reverify", "kn_0")
    assert code == 2
    assert "KERNEL: found 'kn_0', expected the id of a stored kernel" in err
    code, out, err = said("reverify", library.kernels["holds"], "--wait", "0", "--json")
    assert code == 0, err
    assert [each["state"] for each in json.loads(out)] == ["pending"]
    assert said("reverify", library.kernels["holds"], "--wait", "0.01")[0] == 1  # nobody judges
    library.work()
