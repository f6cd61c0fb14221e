"""Which directories a confined process may read: those of Python and its packages, however they were installed."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from warpsmith.workers.judge.sandbox import sandbox


def test_packages_installed_into_a_directory_are_read_and_what_lies_beside_them_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """PyTorch imports a package where it is there: one that may not be read would end every compiled baseline."""
    target, project = tmp_path / "target", tmp_path / "project"
    record = target / "redis-8.1.0.dist-info" / "RECORD"
    record.parent.mkdir(parents=True)
    record.write_text("redis/__init__.py,,\nsix.py,,\n../bin/tool,,\n/etc/passwd,,\ngone/__init__.py,,\n")
    for made in (target / "redis" / "__init__.py", target / "six.py", target / ".env", project / "model.py"):
        made.parent.mkdir(exist_ok=True)
        made.touch()
    sandbox.toolchain.cache_clear()
    monkeypatch.setattr(sys, "path", [str(target), str(project), str(tmp_path / "missing"), "", *sys.path])
    try:
        readable = {Path(rule.path) for rule in sandbox.toolchain()}
    finally:
        sandbox.toolchain.cache_clear()
    found = {path.relative_to(tmp_path) for path in readable if path.is_relative_to(tmp_path)}
    assert found == {Path("target/redis"), Path("target/six.py")}
    assert not {Path("/etc"), Path("/etc/passwd"), tmp_path} & readable
