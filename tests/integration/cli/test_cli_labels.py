"""Searches are named, tagged, listed, archived and deleted from the command line."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.api_support import application, command_line, seed, settings_for
from warpsmith.kernels_db.store.tables import SearchRow


@pytest.fixture
def said(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Any]:
    """Run a command against a service with the seeded search; returns exit code, standard output, standard error."""
    app = application(settings_for(tmp_path))
    seed(app.state.service.db)
    with command_line(app, capsys, monkeypatch) as run_it:
        yield run_it


def test_a_search_is_labelled_and_found(said: Any) -> None:
    code, _, err = said("label", "sr_seed")
    assert (code, "--name, --notes, --tag or --untag" in err) == (2, True)
    assert said("label", "sr_seed", "--name", "Long rows", "--tag", "paper", "--tag", "h100")[:2] == (
        0,
        "search sr_seed is named Long rows, tags h100, paper\n",
    )
    document = json.loads(said("label", "sr_seed", "--untag", "h100", "--notes", "try again", "--json")[1])
    assert (document["name"], document["tags"], document["notes"]) == ("Long rows", ["paper"], "try again")
    listed = said("searches", "--tag", "paper", "--sort", "time", "--ascending")[1]
    assert "Long rows  paper  no live judge worker for its target" in listed
    assert [row["id"] for row in json.loads(said("searches", "--text", "again", "--json")[1])] == ["sr_seed"]
    assert "no search matches" in said("searches", "--tag", "absent")[2]


def test_a_search_is_archived_and_deleted_once_it_has_ended(said: Any) -> None:
    code, _, err = said("archive", "sr_seed")
    assert (code, "one that has ended" in err) == (1, True)
    assert said("cancel", "sr_seed")[0] == 0
    assert said("archive", "sr_seed")[:2] == (0, "search sr_seed is archived\n")
    assert said("searches")[1] == ""
    assert "sr_seed" in said("searches", "--archived")[1]
    assert json.loads(said("unarchive", "sr_seed", "--json")[1])[0]["archived_at"] is None
    code, _, err = said("delete", "sr_seed")
    assert (code, "--yes: found 'not given'" in err) == (2, True)
    assert said("delete", "sr_seed", "--yes")[:2] == (0, "search sr_seed is deleted, with 3 nodes; kept: kn_0\n")
    assert said("tree", "sr_seed")[0] == 1
    assert said("kernels")[0] == 0


def test_a_search_that_is_paused_or_failed_has_its_reason_beside_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    app = application(settings_for(tmp_path))
    seed(app.state.service.db)
    with command_line(app, capsys, monkeypatch) as said:
        said("pause", "sr_seed")
        assert said("searches")[1].endswith("  no live judge worker for its target  on request\n")
        with app.state.service.db.writing() as session:
            row = session.get_one(SearchRow, "sr_seed")
            row.state, row.reason = "failed", "the op was not admitted:\n\x1b[2J" + "x" * 999
        failed = said("searches")[1]
        assert "  the op was not admitted: [2Jxxx" in failed
        assert failed.endswith("xxx...\n")
        assert failed.count("\n") == 1
        with app.state.service.db.writing() as session:
            session.get_one(SearchRow, "sr_seed").state = "running"
        assert "not admitted" not in said("searches")[1]
