"""The kinds of tests: which a run takes, what it counts, and how it ends."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests import REPOSITORY

CONFTEST = """
from tests.kinds import (
    pytest_addoption, pytest_collection, pytest_collection_modifyitems, pytest_configure, pytest_ignore_collect,
    pytest_terminal_summary, pytest_testnodedown,
)
"""
SETTINGS = """
[pytest]
addopts = -p xdist -p no:schemathesis --strict-markers -p no:cacheprovider
markers =
    alone
    nightly
"""
SHARING = """
import pytest

def test_one(): pass

@pytest.mark.parametrize("case", [1, 2])
def test_two(case): pass

def test_absent(): pytest.skip("not here")

@pytest.mark.nightly
def test_long(): pass
"""
ALONE = """
import os, pytest
pytestmark = pytest.mark.alone

def test_clock(): assert "PYTEST_XDIST_WORKER" not in os.environ

@pytest.mark.nightly
def test_long_clock(): assert "PYTEST_XDIST_WORKER" not in os.environ
"""
BROKEN = """
import pytest

@pytest.fixture
def absent(): raise OSError

def test_set_up(absent): pass

def test_wrong(): assert False
"""


@pytest.fixture
def suite(tmp_path: Path) -> Path:
    """A small suite: six tests that share the machine, one of them nightly, and two alone, one of them nightly."""
    (tmp_path / "conftest.py").write_text(CONFTEST)
    (tmp_path / "pytest.ini").write_text(SETTINGS)
    (tmp_path / "test_sharing.py").write_text(SHARING)
    (tmp_path / "test_more.py").write_text("def test_more(): pass\n")
    (tmp_path / "test_alone.py").write_text(ALONE)
    return tmp_path


def start(suite: Path, module: str, *arguments: str) -> tuple[int, list[str]]:
    """The exit status and the lines of `python -m MODULE` in the suite."""
    passed = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    done = subprocess.run(
        [sys.executable, "-m", module, *arguments],
        cwd=suite,
        # The other plugins take longer to import than the suite to run.
        env={**passed, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTHONPATH": str(REPOSITORY)},
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout.splitlines()


def test_the_nightly_ones_are_left_out_and_counted(suite: Path) -> None:
    code, lines = start(suite, "tests")
    assert code == 0
    assert lines[-2] == "== 6 tests run, 1 of them alone. Left to `make test-all`, because slow: 2 nightly tests."
    assert lines[-1] == "5 passed, 0 failed, 1 skipped"


def test_with_the_nightly_ones_nothing_is_left(suite: Path) -> None:
    code, lines = start(suite, "tests", "--nightly")
    assert code == 0
    assert lines[-2:] == [
        "== 8 tests run, 2 of them alone. No kind of test was left out.",
        "7 passed, 0 failed, 1 skipped",
    ]


def test_the_second_phase_follows_a_failed_one_and_an_error_in_set_up_is_a_failure(suite: Path) -> None:
    (suite / "test_broken.py").write_text(BROKEN)
    code, lines = start(suite, "tests")
    assert code == 1
    assert lines[-1] == "5 passed, 2 failed, 1 skipped"


def test_a_failure_of_the_second_phase_is_one(suite: Path) -> None:
    (suite / "test_broken.py").write_text(f"{BROKEN}\npytestmark = pytest.mark.alone\n")
    code, lines = start(suite, "tests")
    assert code == 1
    assert lines[-2].startswith("== 8 tests run, 3 of them alone.")
    assert lines[-1] == "5 passed, 2 failed, 1 skipped"


def test_a_module_that_cannot_be_imported_fails_and_the_others_are_read(suite: Path) -> None:
    (suite / "test_unreadable.py").write_text("import no_such_module\n")
    code, lines = start(suite, "tests", "--continue-on-collection-errors")
    assert code == 1
    assert lines[-1] == "5 passed, 2 failed, 1 skipped"  # each phase met it


@pytest.mark.parametrize(
    ("arguments", "closing"),
    [
        (["-k", "clock"], "1 passed, 0 failed, 0 skipped"),
        pytest.param(["-k", "more"], "1 passed, 0 failed, 0 skipped", marks=pytest.mark.nightly),
        pytest.param(["test_more.py"], "1 passed, 0 failed, 0 skipped", marks=pytest.mark.nightly),
        (["test_more.py", "test_alone.py::test_clock"], "2 passed, 0 failed, 0 skipped"),
        (["-n", "1", "test_sharing.py::test_one"], "1 passed, 0 failed, 0 skipped"),
    ],
)
def test_a_selection_runs_in_the_phases_that_it_needs(suite: Path, arguments: list[str], closing: str) -> None:
    code, lines = start(suite, "tests", *arguments)
    assert (code, lines[-1]) == (0, closing)


def test_a_selection_of_nothing_is_told(suite: Path) -> None:
    code, lines = start(suite, "tests", "-k", "nothing_of_that_name")
    assert (code, lines[-1]) == (5, "0 passed, 0 failed, 0 skipped")


def test_a_path_that_is_not_there_fails(suite: Path) -> None:
    code, lines = start(suite, "tests", "no_such_file.py")
    assert code == 4
    assert lines[-1].startswith("0 passed, ")
    assert ", 0 failed" not in lines[-1]


def test_a_plain_run_says_what_it_leaves_out(suite: Path) -> None:
    code, lines = start(suite, "pytest", "test_sharing.py", "test_alone.py")
    assert code == 0
    assert "2 nightly tests left out, --nightly runs them" in lines
    assert "4 passed, 1 skipped, 2 deselected" in lines[-1]


def test_a_plain_parallel_run_leaves_the_alone_ones_out(suite: Path) -> None:
    code, lines = start(suite, "pytest", "-n", "1", "--nightly")
    assert code == 0
    assert "2 alone tests left out: not beside others (-n)" in lines
