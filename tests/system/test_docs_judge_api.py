"""The examples of docs/judge-api.md, run as they stand on the page."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests import REPOSITORY
from tests.kinds import nightly_but

PAGE = (REPOSITORY / "docs/judge-api.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
FILES = {found[1]: block for _, block in BLOCKS if (found := re.match(r"# (\S+\.\w+)\n", block))}
WORKFLOW = ".github/workflows/kernels.yml"
UNREADABLE, WRONG, SLOWEST = -2.5, -2.0, -1.5

pytestmark = pytest.mark.alone


@pytest.fixture
def project(tmp_path: Path, judge_cache: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project with every file of the page, where `warpsmith` and `python` are those under test."""
    monkeypatch.setenv("WARPSMITH_JUDGE_CACHE", str(judge_cache))
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    (tmp_path / "bin").mkdir()
    for name, words in {"warpsmith": "-P -m warpsmith.service.cli", "python": ""}.items():
        (tmp_path / "bin" / name).write_text(f'#!/bin/sh\nexec {sys.executable} {words} "$@"\n')
        (tmp_path / "bin" / name).chmod(0o755)
    return tmp_path


def run(project: Path, *command: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run a command in the project."""
    place = {"PATH": f"{project / 'bin'}:{os.environ['PATH']}", "PYTHONPATH": str(REPOSITORY / "src")}
    return subprocess.run(
        command,
        cwd=project,
        env={**os.environ, **place, **variables},
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
    )


def break_kernel(project: Path) -> None:
    kernel = project / "kernels/bias_relu.py"
    kernel.write_text(kernel.read_text().replace("+ bias[c]", "- bias[c]"))


def test_the_page_has_its_files() -> None:
    wanted = {"ops/bias_relu.yaml", "kernels/bias_relu.py", "reward.py", "tests/test_kernels.py", WORKFLOW}
    assert set(FILES) == wanted


def test_the_first_program_and_the_reward_function(project: Path) -> None:
    """64 candidates: one is right, one wrong, the others cannot be read."""
    first = next(block for language, block in BLOCKS if language == "python")
    (project / "first.py").write_text(first)
    words = run(project, "python", "first.py")
    assert re.match(r"True \d+\.\d+ right on the bench workloads", words.stdout), words.stdout + words.stderr
    done = run(project, "python", "reward.py")
    assert done.returncode == 0, done.stderr
    right, wrong, *unreadable = ast.literal_eval(done.stdout)
    assert (wrong, unreadable) == (WRONG, [UNREADABLE] * 62)
    assert right >= SLOWEST


@pytest.mark.parametrize("right", [pytest.param(True, marks=pytest.mark.nightly), False])
def test_the_projects_own_test(project: Path, right: bool) -> None:
    if not right:
        break_kernel(project)
    # By name, and not by its entry point: this environment may be of a checkout without it.
    plugin = ("-p", "warpsmith.workers.judging.pytest_plugin", "-p", "no:cacheprovider")
    done = run(project, sys.executable, "-m", "pytest", "-q", *plugin, "tests", PYTEST_DISABLE_PLUGIN_AUTOLOAD="1")
    assert ("1 passed" if right else "1 failed") in done.stdout, done.stdout + done.stderr
    assert right or "workload batch: y[" in done.stdout


@pytest.mark.parametrize("code", nightly_but(lambda code: code == 2, range(3)))
def test_the_step_of_ci(project: Path, code: int) -> None:
    (job,) = yaml.safe_load(FILES[WORKFLOW])["jobs"].values()
    if code == 1:
        break_kernel(project)
    if code == 2:
        (project / "kernels/bias_relu.py").unlink()
    done = run(project, "bash", "-e", "-c", job["steps"][-1]["run"])
    assert done.returncode == code, done.stdout + done.stderr
    said = {0: "right on the bench workloads", 1: "workload batch: y[", 2: "asked wrongly"}[code]
    assert said in done.stdout
