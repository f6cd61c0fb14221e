"""A backup as docs/guide.md has it: a dump of PostgreSQL, restored into an empty database, serves the same."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient
from sqlalchemy.engine import make_url

from benchmarks.chaos.postgresql import find_program
from tests import REPOSITORY
from tests.services import postgres_database
from tests.support.api_support import SEARCH, client_of, database, settings_for
from tests.support.steps_support import SETTINGS, Driver
from warpsmith.kernels_db.library.seed_library import stock
from warpsmith.kernels_db.store.db import Database
from warpsmith.workers import steps

LISTS = ("/v1/ops", "/v1/searches", "/v1/kernels", "/v1/pools", "/v1/audit")


def commands() -> dict[str, list[str]]:
    """The commands of the guide's section on backups, by their program."""
    text = (REPOSITORY / "docs" / "guide.md").read_text(encoding="utf-8")
    section = text.split("### Backup and restore", 1)[1].split("\n## ", 1)[0]
    block = re.search(r"```\n(.*?)```", section, re.DOTALL)
    assert block is not None
    lines = [line.partition("#")[0].split() for line in block[1].splitlines()]
    return {words[0]: words for words in lines if words and words[0].startswith("pg_")}


def run(words: list[str], **values: str) -> None:
    """Run a command of the guide with the values of its capitals."""
    program = find_program(words[0])
    subprocess.run([program, *(values.get(word, word) for word in words[1:])], check=True, capture_output=True)


def finish(db: Database, search_id: str) -> None:
    """Play every worker until the search ends."""
    later = db.now() + 1000.0  # the messages that the API sent were lost
    driver = Driver(db, search_id, now=later)
    assert driver.run(steps.reconcile(db, later, SETTINGS)).state == "finished"


def served(client: TestClient, kernel_id: str, search_id: str) -> dict[str, Any]:
    """Everything that must be the same after the backup was restored."""
    paths = (
        *LISTS,
        f"/v1/searches/{search_id}",
        f"/v1/searches/{search_id}/tree",
        f"/v1/searches/{search_id}/pool",
        f"/v1/kernels/{kernel_id}",
        f"/v1/kernels/{kernel_id}/export?format=package",
    )
    found: dict[str, Any] = {}
    for path in paths:
        answer = client.get(path)
        assert answer.status_code == 200, f"{path}: {answer.text}"
        found[path] = answer.content if "export" in path or "pool" in path else answer.json()
    return found


@pytest.mark.nightly
def test_a_restored_dump_serves_the_same(tmp_path: Path, postgres_url: str) -> None:
    with client_of(settings_for(tmp_path / "one", database_url=postgres_url)) as client:
        search_id = client.post("/v1/searches", json=SEARCH).json()["id"]
        finish(database(client), search_id)
        stock(database(client))  # kernels with whole evidence, which a package needs
        kernel = next(item for item in client.get("/v1/kernels").json()["items"] if item["op_name"] == "softmax")
        before = served(client, kernel["id"], search_id)
        assert before["/v1/audit"]["items"], "the audit log is part of it"
    backup = commands()
    file = str(tmp_path / "warpsmith.dump")
    run(backup["pg_dump"], URL=_plain(postgres_url), FILE=file)
    with postgres_database() as restored_url:
        run(backup["pg_restore"], URL=_plain(restored_url), FILE=file)
        db = Database(restored_url)
        found, expected = db.revision()
        db.dispose()
        assert found == expected
        with client_of(settings_for(tmp_path / "two", database_url=restored_url)) as client:
            after = served(client, kernel["id"], search_id)
    assert after == before


def _plain(url: str) -> str:
    """The URL without SQLAlchemy's driver, as PostgreSQL's own programs take it."""
    return make_url(url).set(drivername="postgresql").render_as_string(hide_password=False)
