"""Which directories a confined process may read: those of Python and its packages, however they were installed."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from warpsmith.workers.judge.sandbox import sandbox


def test_a_directory_that_packages_were_installed_into_is_read_and_a_projects_own_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """PyTorch imports a package where it is there: one that may not be read would end every compiled baseline."""
    target, project, missing = (tmp_path / name for name in ("target", "project", "missing"))
    (target / "redis-8.1.0.dist-info").mkdir(parents=True)
    project.mkdir()
    (project / "pyproject.toml").touch()
    sandbox.toolchain.cache_clear()
    monkeypatch.setattr(sys, "path", [*map(str, (target, project, missing)), "", *sys.path])
    try:
        readable = {rule.path for rule in sandbox.toolchain()}
    finally:
        sandbox.toolchain.cache_clear()
    assert str(target) in readable
    assert not {str(project), str(missing)} & readable
