"""`python -m benchmarks.campaign`: recorded searches again, on a home of its own, as a process."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from benchmarks import campaign
from tests.support.launching import PATIENCE_S, REPOSITORY, environment, write_scenario
from warpsmith.kernels_db.store.pool_file import dump_pool, parse_pool
from warpsmith.service.client.errors import ServiceUnreachableError
from warpsmith.service.client.http import Client
from warpsmith.service.documents.searches import SearchDocument, SearchSummary, WaitingFor
from warpsmith.workers.judging import machine

pytestmark = pytest.mark.skipif(bool(machine.missing_for_judge()), reason="this machine cannot judge")


def run(home: Path, *arguments: str, code: int = 0) -> str:
    """The campaign's standard output."""
    result = subprocess.run(
        [sys.executable, "-m", "benchmarks.campaign", *arguments],
        env=environment(home),
        cwd=REPOSITORY,
        check=False,
        capture_output=True,
        text=True,
        timeout=2 * PATIENCE_S,
    )
    assert result.returncode == code, f"exit code {result.returncode}\n{result.stdout}\n{result.stderr}"
    assert "Traceback" not in result.stderr, result.stderr
    return result.stdout


@pytest.mark.nightly
def test_a_recording_is_searched_again_and_what_it_lacks_is_asked_for(tmp_path: Path) -> None:
    _, pool = write_scenario(tmp_path)
    home, copy = tmp_path / "home", tmp_path / "copy.db"
    arguments = (str(pool), "--examples", str(tmp_path), "--home", str(home), "--save", str(copy), "--go-on")
    said = run(home, *arguments)
    assert "scale_shift #0 (round 0) accepted without timing: baselines" in said
    assert "scale_shift #1 (round 1) accepted" in said
    assert ": loop" in said
    row = said.splitlines()[-1]
    assert row.startswith("| scale_shift | cpu:x86_64 | cpp | running | 1 |")
    with closing(sqlite3.connect(copy)) as database:
        (searches,) = database.execute("select count(*) from searches").fetchone()
        asks = [messages for (messages,) in database.execute("select messages from asks where state = 'open'")]
    assert searches == 1
    assert any("unheard" in messages for messages in asks), "its code was never recorded"

    again = run(home, *arguments)
    assert again.splitlines()[-1].startswith("| scale_shift | cpu:x86_64 | cpp | running | 1 |")
    with closing(sqlite3.connect(copy)) as database:
        assert database.execute("select count(*) from searches").fetchone() == (1,), "it was gone on with"


@pytest.mark.nightly
def test_a_copy_that_cannot_be_written_ends_it_at_once(tmp_path: Path) -> None:
    _, pool = write_scenario(tmp_path)
    arguments = (str(pool), "--examples", str(tmp_path), "--home", str(tmp_path / "home"))
    assert run(tmp_path / "home", *arguments, "--save", str(tmp_path / "absent" / "copy.db"), code=1) == ""


def summary(number: int, state: str, **fields: str) -> SearchSummary:
    said = {"op_name": "scale_shift", "target": "cpu:x86_64", "language": "cpp", "provider": "agent", **fields}
    return cast("SearchSummary", SimpleNamespace(id=f"se_{number}", state=state, **said))


def test_of_the_searches_of_a_home_the_newest_that_fits_is_gone_on_with(tmp_path: Path) -> None:
    _, pool = write_scenario(tmp_path)
    found = [campaign.recorded(pool, tmp_path, ["cpu:x86_64"])]
    asked: list[tuple[str, ...]] = []

    class Service:
        def __init__(self, *searches: SearchSummary) -> None:
            self.searches = lambda: list(searches)

        def import_pool(self, content: bytes, told: object) -> SimpleNamespace:
            return SimpleNamespace(id="po_1")

        def create_search(self, body: dict[str, Any]) -> SimpleNamespace:
            asked.append(("create", body["model"]["provider"]))
            return SimpleNamespace(id="se_new")

        def change_search(self, search_id: str, action: str) -> None:
            asked.append((action, search_id))

    def ids(*searches: SearchSummary, go_on: bool = True) -> list[str]:
        return campaign.begin(cast("Client", Service(*searches)), found, go_on=go_on)

    assert ids(summary(3, "failed"), summary(2, "paused"), summary(1, "running")) == ["se_2"]
    assert asked == [("resume", "se_2")]
    assert ids(summary(1, "running", language="triton"), summary(0, "running", provider="replay")) == ["se_new"]
    assert ids(summary(1, "finished", provider="replay"), go_on=False) == ["se_1"]
    assert ids(summary(1, "failed", provider="replay"), go_on=False) == ["se_new"]
    assert asked[1:] == [("create", "agent"), ("create", "replay")]


def test_a_service_that_is_slow_to_answer_ends_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(campaign, "LOOK_EVERY_S", 0.0)
    database, copy = tmp_path / "home.db", tmp_path / "copy.db"
    with closing(sqlite3.connect(database)) as made:
        made.execute("create table searches (id)")
        made.commit()
    looks: list[Any] = [ServiceUnreachableError("http://here", TimeoutError("late"))] * 5

    def search(search_id: str) -> SimpleNamespace:
        if looks and (said := looks.pop()):
            raise said
        return SimpleNamespace(id=search_id, state="finished", waiting_for=[])

    client = cast("Client", SimpleNamespace(search=search, tree=lambda _: []))
    assert [each.id for each in campaign.run(client, ["se_1"], 60.0, database, copy)] == ["se_1"]
    copy.unlink()
    looks += [ServiceUnreachableError("http://here", TimeoutError("gone"))] * 20
    with pytest.raises(ServiceUnreachableError):
        campaign.run(client, ["se_1"], 60.0, database, copy)
    with closing(sqlite3.connect(copy)) as saved:
        assert saved.execute("select count(*) from searches").fetchone() == (0,), "a whole copy"


def test_a_pool_that_cannot_be_searched_again_is_named(tmp_path: Path) -> None:
    _, pool = write_scenario(tmp_path)
    recorded = parse_pool(pool.read_text())
    targets = ["cpu:x86_64"]
    assert campaign.recorded(pool, tmp_path, targets).body({"provider": "replay"})["policy"] == recorded.header.policy
    for field, value, told in (
        ("target", "cuda:sm_90", "target: found cuda:sm_90, expected one of cpu:x86_64"),
        ("op_digest", "0" * 64, "op_digest: found 000000000000, expected"),
        ("op", "absent", "absent.yaml"),
    ):
        pool.write_text(dump_pool(replace(recorded, header=replace(recorded.header, **{field: value}))))
        with pytest.raises(campaign.CampaignError, match=told) as caught:
            campaign.recorded(pool, tmp_path, targets)
        assert str(caught.value).startswith(pool.name)


@pytest.mark.parametrize(
    ("state", "waits", "idle"),
    [
        ("running", [], False),
        ("running", ["answer"], True),
        ("running", ["answer", "judge"], False),
        ("paused", ["person"], True),
        ("paused", ["retry"], False),
        ("finished", [], True),
    ],
)
def test_a_search_is_idle_once_answers_are_all_that_it_waits_for(state: str, waits: list[str], idle: bool) -> None:
    waiting = [WaitingFor(what=what, count=1, detail=what) for what in waits]  # type: ignore[arg-type]
    search = SimpleNamespace(state=state, waiting_for=waiting)
    assert campaign.is_idle(cast("SearchDocument", search)) is idle
