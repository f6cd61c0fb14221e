"""Where Warpsmith itself is imported from: an export has to do without it."""

from __future__ import annotations

import sysconfig
from pathlib import Path


def checkout(module: Path = Path(__file__)) -> Path | None:
    """The directory that Warpsmith alone is imported from, given the file of a module of this package; None where it is
    installed: there torch lies beside it, and only the child's import blocker keeps the two apart.
    """
    root = module.resolve().parents[2]
    installed = {Path(sysconfig.get_path(scheme)).resolve() for scheme in ("purelib", "platlib")}
    return None if root in installed else root
