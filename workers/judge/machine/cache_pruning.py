"""Prune the cache directory: entries unused for weeks go when a judge starts."""

from __future__ import annotations

import contextlib
import os
import shutil
import time
from pathlib import Path

KEEP_S = 14 * 24 * 3600.0
_GROUPS = ("kernels", "inductor", "experts", "baselines")


def touch(entry: Path) -> None:
    """Note that an entry of the cache is in use."""
    with contextlib.suppress(FileNotFoundError):  # the process that fills it makes it
        os.utime(entry)


def prune(cache: Path, now: float | None = None) -> list[Path]:
    """Remove entries of the cache that were not used for KEEP_S; returns them.

    Another judge may do the same at once.
    """
    oldest = (time.time() if now is None else now) - KEEP_S
    removed = []
    for group in _GROUPS:
        with contextlib.suppress(FileNotFoundError):
            for entry in os.scandir(cache / group):
                with contextlib.suppress(FileNotFoundError):
                    if entry.stat(follow_symlinks=False).st_mtime >= oldest:
                        continue
                    if entry.is_dir(follow_symlinks=False):
                        shutil.rmtree(entry.path, ignore_errors=True)
                    else:
                        os.unlink(entry.path)
                    removed.append(Path(entry.path))
    return removed
