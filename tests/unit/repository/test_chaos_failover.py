"""What the report of a lost node says of the time without a verdict."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from benchmarks.chaos.failover import time_pauses
from warpsmith.kernels_db.store.db import Database


@pytest.mark.parametrize(("open_", "within_s", "pauses"), [({"search": "se_1"}, 0.0, 1), ({}, 60.0, 0)])
def test_a_pause_that_no_verdict_ends_is_told(
    open_: dict[str, str], within_s: float, pauses: int, tmp_path: Path
) -> None:
    db = Database(f"sqlite:///{tmp_path / 'away.db'}")  # without tables, as a database that does not come back
    fleet = SimpleNamespace(supervise=lambda: None)
    run: Any = SimpleNamespace(db=db, open=open_, world=SimpleNamespace(fleet=fleet), collect=lambda: None)
    try:
        assert len(time_pauses(run, within_s)) == pauses
    finally:
        db.dispose()
