"""Where the process that checks an export finds Warpsmith, and how it forgets it."""

from __future__ import annotations

import sysconfig
from pathlib import Path

import pytest

from warpsmith.workers.exports import location


@pytest.mark.parametrize("scheme", ["purelib", "platlib"])
def test_an_installed_warpsmith_leaves_the_path_that_torch_is_on(scheme: str) -> None:
    assert location.checkout(Path(sysconfig.get_path(scheme))) is None


def test_a_checkout_is_taken_off_the_path(tmp_path: Path) -> None:
    assert location.checkout(tmp_path / "src") == tmp_path / "src"
