"""`python -m benchmarks.chaos.failover`: a node of RabbitMQ, and a primary of PostgreSQL, that are lost."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest

from benchmarks.chaos.failover import FAILOVERS, measure
from benchmarks.chaos.hosts import Missing
from tests.services import absent


@pytest.mark.nightly
@pytest.mark.timeout(900)
@pytest.mark.parametrize("which", sorted(FAILOVERS))
def test_a_node_that_is_lost_loses_and_doubles_nothing(which: str, capsys: pytest.CaptureFixture[str]) -> None:
    with tempfile.TemporaryDirectory(prefix="ws-failover-") as directory:
        Path(directory).chmod(0o755)  # PostgreSQL runs as another user
        try:
            passed = measure(which, Path(directory))
        except Missing as missing:
            absent(str(missing))
    assert passed, capsys.readouterr().out
