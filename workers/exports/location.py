"""The place that Warpsmith itself is imported from: an export has to do without it."""

from __future__ import annotations

import sysconfig
from pathlib import Path

from warpsmith import IMPORT_ROOT


def checkout(root: Path = IMPORT_ROOT) -> Path | None:
    """Return the directory that Warpsmith alone is imported from; None where it is installed.

    An installed Warpsmith lies beside torch, and only the child's import blocker keeps the two apart.
    """
    installed = {Path(sysconfig.get_path(scheme)).resolve() for scheme in ("purelib", "platlib")}
    return None if root in installed else root
