"""Kernels that ship: what the `library` format writes is read, stored once, listed and exported without its search."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
from sqlalchemy import select

from tests.exporting import SCALED_ADD, SCALED_ADD_CPP, exported
from tests.services import on_both_databases
from tests.support.api_support import application, command_line, settings_for
from warpsmith.kernels_db.export import library as form
from warpsmith.kernels_db.export.kernel import ExportedKernel
from warpsmith.kernels_db.library import BrokenEntry, entries, read_entry
from warpsmith.kernels_db.library.seed_library import stock
from warpsmith.kernels_db.store.db import Database
from warpsmith.kernels_db.store.tables import KernelRow, OpRow


def kernel() -> ExportedKernel:
    made = exported(SCALED_ADD, SCALED_ADD_CPP)
    said = {"target": made.target, "language": "cpp", "level": "verify", "verdict": "accepted", "score": 2.0}
    return replace(made, evidence={**made.evidence, **said, "score_ci95": [1.9, 2.1]})


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return form.build(kernel(), tmp_path / "library")


@on_both_databases("db")
def test_what_was_exported_is_stored_once_and_whole(db: Database, directory: Path) -> None:
    assert stock(db, entries(directory.parent)) == 1
    assert stock(db, entries(directory.parent)) == 0
    made = kernel()
    with db.reading() as session:
        row = session.scalars(select(KernelRow)).one()
        assert session.scalars(select(OpRow.name)).all() == ["scaled_add"]
    assert (row.id, row.search_id, row.node_id) == ("kn_test", None, None)
    assert (row.score, row.ci_low, row.ci_high, row.limit_fraction) == (2.0, 1.9, 2.1, 0.5)
    assert (row.source, row.evidence, row.lineage) == (made.source, made.evidence, made.lineage)
    assert row.prompts == made.prompts


def test_what_an_update_leaves_of_an_entry_is_none(directory: Path) -> None:
    (directory.parent / "gone_cpp_00000000" / "__pycache__").mkdir(parents=True)
    (directory.parent / ".hidden").mkdir()
    assert [entry.directory for entry in entries(directory.parent)] == [directory]
    (directory / form.CANDIDATE).unlink()
    with pytest.raises(BrokenEntry, match=form.CANDIDATE):
        list(entries(directory.parent))


@on_both_databases("db")
def test_services_that_start_at_once_store_it_once(db: Database, directory: Path) -> None:
    found = list(entries(directory.parent))
    start = threading.Barrier(4)

    def started(_: int) -> int:
        own = Database(db.url.render_as_string(hide_password=False))  # connections of its own, as a process has
        try:
            start.wait(10)
            return stock(own, found)
        finally:
            own.dispose()

    with ThreadPoolExecutor(4) as pool:
        assert sorted(pool.map(started, range(4))) == [0, 0, 0, 1]
    with db.reading() as session:
        assert len(session.scalars(select(KernelRow)).all()) == 1


@on_both_databases("db")
def test_a_kernel_of_an_own_search_stays(db: Database, directory: Path) -> None:
    stock(db, entries(directory.parent))
    with db.writing() as session:
        session.scalars(select(KernelRow)).one().id = "kn_own"
    assert stock(db, entries(directory.parent)) == 0


def without_a_byte(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-1])


def of_another_op(file: Path) -> None:
    spec = json.loads(file.read_text())
    file.write_text(json.dumps({**spec, "description": "another"}))


def of_another_version(file: Path) -> None:
    file.write_text(json.dumps({**json.loads(file.read_text()), "version": 2}))


def without_an_id(file: Path) -> None:
    file.write_text(json.dumps({name: value for name, value in json.loads(file.read_text()).items() if name != "id"}))


def for_another_target(file: Path) -> None:
    file.write_text(json.dumps({**json.loads(file.read_text()), "target": "cuda:sm_90"}))


@on_both_databases("db")
@pytest.mark.parametrize(
    ("name", "change", "said"),
    [
        ("candidate.py", without_a_byte, "SHA-256"),
        ("candidate.py", Path.unlink, "No such file"),
        ("op.json", of_another_op, "the envelope's"),
        ("op.json", lambda file: file.write_text("{}"), "schema_version"),
        ("verdict.json", lambda file: file.write_text(file.read_text().replace("2.0", "9.0")), "SHA-256"),
        ("verdict.json", Path.unlink, "No such file"),
        ("kernel.json", Path.unlink, "No such file"),
        ("kernel.json", lambda file: file.write_text("[]"), "expected an object"),
        ("kernel.json", lambda file: file.write_text("{"), "no JSON"),
        ("kernel.json", of_another_version, "('warpsmith-kernel', 1)"),
        ("kernel.json", without_an_id, "id: found None, expected str"),
        ("kernel.json", for_another_target, "verdict.json: found {'target': 'cpu"),
    ],
)
def test_an_entry_that_was_changed_is_refused_by_its_file(
    name: str, change: Callable[[Path], object], said: str, db: Database, directory: Path
) -> None:
    change(directory / name)
    with pytest.raises(BrokenEntry) as caught:
        stock(db, entries(directory.parent))
    assert str(directory) in str(caught.value)
    assert said in str(caught.value)
    with db.reading() as session:
        assert session.scalars(select(OpRow)).all() == []


def test_a_fresh_installation_lists_and_exports_what_ships(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    shipped = list(entries())
    assert shipped, "kernels ship"
    app = application(settings_for(tmp_path / "home"))
    stock(app.state.service.db)
    one = min(shipped, key=lambda entry: len(entry.source))
    with command_line(app, capsys, monkeypatch) as said:
        code, out, err = said("kernels")
        assert code == 0, err
        assert all(entry.document["id"] in out for entry in shipped)
        asked = ("--target", one.target, "--format", "library", "-o", str(tmp_path / "out"))
        code, _, err = said("export", one.op.name, *asked)
        assert code == 0, err
    (again,) = (tmp_path / "out").iterdir()
    for file in sorted(one.directory.iterdir()):
        assert (again / file.name).read_text() == file.read_text(), file.name
    assert read_entry(again).source == one.source
