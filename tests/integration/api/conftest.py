"""Clients of the API that several modules share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from tests.support.api_support import client_of, settings_for
from warpsmith.kernels_db.store.db import Database


@pytest.fixture
def client(db: Database, tmp_path: Path) -> Iterator[TestClient]:
    """A client of the API on this database."""
    url = db.url.render_as_string(hide_password=False)
    with client_of(settings_for(tmp_path / "home", database_url=url)) as found:
        yield found


@pytest.fixture
def local(tmp_path: Path) -> Iterator[TestClient]:
    """On SQLite alone, where the database makes no difference."""
    with client_of(settings_for(tmp_path)) as found:
        yield found
