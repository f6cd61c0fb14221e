"""What is said where a database cannot be used."""

from __future__ import annotations

from pathlib import Path

import pytest
from sqlalchemy import text
from sqlalchemy.exc import OperationalError

from warpsmith.kernels_db.library import BrokenEntry
from warpsmith.kernels_db.store.db import Database
from warpsmith.service.local.database_errors import explaining


class _Failed(Exception):  # noqa: N818 - stands for a command's
    """What a command makes of it."""


@pytest.fixture
def db(tmp_path: Path) -> Database:
    return Database(f"sqlite:///{tmp_path / 'empty.db'}")


def test_its_errors_are_one_sentence_that_names_it(db: Database) -> None:
    explained = explaining(db, "the setting", "a better one", _Failed)
    with pytest.raises(_Failed) as said, explained, db.reading() as session:
        session.execute(text("SELECT * FROM kernels"))
    found = f"found sqlite:///{db.url.database}, which cannot be used (no such table: kernels)"
    assert str(said.value) == f"the setting: {found}; expected a better one"


def test_a_broken_library_is_named_and_other_errors_pass(db: Database) -> None:
    what = r"^the library of kernels: no kernel\.json; install Warpsmith again$"
    with pytest.raises(_Failed, match=what), explaining(db, "the setting", "a better one", _Failed):
        raise BrokenEntry("no kernel.json")
    with pytest.raises(KeyError), explaining(db, "the setting", "a better one", _Failed):
        raise KeyError("ours")


def test_an_error_without_words_is_told_by_its_kind(db: Database) -> None:
    what = r"which cannot be used \(TimeoutError\)"
    with pytest.raises(_Failed, match=what), explaining(db, "the setting", "a better one", _Failed):
        raise OperationalError("SELECT 1", {}, TimeoutError())
