"""Fixtures and hooks for every test; see `tests/services.py` and `tests/kinds.py`."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest

from tests import REPOSITORY
from tests.kinds import (
    pytest_addoption,
    pytest_collection,
    pytest_collection_modifyitems,
    pytest_configure,
    pytest_ignore_collect,
    pytest_terminal_summary,
    pytest_testnodedown,
)
from tests.services import (
    migrated_postgres_url,
    migrated_sqlite_url,
    postgres_template,
    postgres_url,
    rabbitmq_url,
    redis_server,
    redis_url,
    statements_compiled_once,
)
from warpsmith.workers.settings import get_settings

__all__ = [
    "migrated_postgres_url",
    "migrated_sqlite_url",
    "postgres_template",
    "postgres_url",
    "pytest_addoption",
    "pytest_collection",
    "pytest_collection_modifyitems",
    "pytest_configure",
    "pytest_ignore_collect",
    "pytest_terminal_summary",
    "pytest_testnodedown",
    "rabbitmq_url",
    "redis_server",
    "redis_url",
    "statements_compiled_once",
]


# Else Dynamo looks for garbage after each graph that it compiles: a tenth of the time of tests with small graphs.
os.environ.setdefault("TORCH_DYNAMO_RUN_GC_AFTER_COMPILE", "0")

_NUMBERS = count()


class _Shown(logging.Handler):
    """Writes what is logged to standard error, which pytest shows of a test that fails.

    One that cannot be written raises where it is logged.
    """

    def emit(self, record: logging.LogRecord) -> None:
        print(self.format(record), file=sys.stderr)


class _Kept(logging.Handler):
    """Keeps what is logged."""

    def __init__(self) -> None:
        super().__init__()
        self.records: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)


@pytest.fixture(scope="session", autouse=True)
def _show_logs() -> None:
    logging.getLogger().addHandler(_Shown())


@pytest.fixture
def logged() -> Iterator[list[logging.LogRecord]]:
    """What is logged while a test runs, from warnings on."""
    kept = _Kept()
    logging.getLogger().addHandler(kept)
    yield kept.records
    logging.getLogger().removeHandler(kept)


@pytest.fixture(autouse=True)
def _own_settings(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """No test sees the WARPSMITH_* variables or the home of whoever runs it.

    The home is a path that does not exist yet: to make and remove a directory for each test takes longer than most.
    """
    for name in list(os.environ):
        if name.startswith("WARPSMITH_") and not name.startswith("WARPSMITH_TEST_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("WARPSMITH_HOME", str(tmp_path_factory.getbasetemp() / "homes" / str(next(_NUMBERS))))
    # Seconds a verification; what searches for counterexamples asks for its time itself.
    monkeypatch.setenv("WARPSMITH_ATTACK_S", "0")
    get_settings.cache_clear()


@pytest.fixture(scope="session")
def examples() -> Path:
    """The directory of the op specs that ship with Warpsmith."""
    return REPOSITORY / "examples"


@pytest.fixture(scope="session")
def judge_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What a judge keeps between its jobs, builds and the peaks of this machine; for those who do not harm it."""
    return tmp_path_factory.mktemp("judge-cache")
