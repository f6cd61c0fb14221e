"""Kernel caches that have the extension for launch plans already."""

from __future__ import annotations

import atexit
import shutil
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

from warpsmith.kernels_db.runtime import plan_build


@cache
def _built() -> Path:
    place = TemporaryDirectory(prefix="ws-plans-")
    atexit.register(place.cleanup)
    plan_build.build(place.name)
    return Path(place.name)


def with_plans(directory: Path) -> str:
    """Put the extension into a kernel cache, which stays without anything else; returns its path.

    It is built once for a process: that takes longer than most of the tests which need it.
    """
    shutil.copytree(_built(), directory, dirs_exist_ok=True)
    return str(directory)
