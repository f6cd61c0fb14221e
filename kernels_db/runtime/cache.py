"""The build cache: one directory of content-addressed files, safe for any number of processes at once.

A file is written beside its place and renamed into it, so a reader sees a whole file or none. Two processes that build
the same content do the work twice and the second rename changes nothing. Whoever can write here can change what others
load: keep it to one user, and read-only to code that is not trusted.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .errors import CacheError

CACHE_VARIABLE = "WARPSMITH_KERNEL_CACHE"

_redirected: Path | None = None


@dataclass(frozen=True)
class Build:
    """A built kernel file. seconds: of the build that made it; cached: that was an earlier one."""

    path: Path
    log: str
    seconds: float
    cached: bool


def cache_directory(override: Path | str | None = None) -> Path:
    """`override`, else where `redirect` points, else the directory that WARPSMITH_KERNEL_CACHE names, else
    `warpsmith/kernels` in the user's cache.
    """
    if override is not None:
        return Path(override)
    if _redirected is not None:
        return _redirected
    named = os.environ.get(CACHE_VARIABLE)
    if named:
        return Path(named)
    base = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return Path(base) / "warpsmith" / "kernels"


def redirect(directory: Path | str) -> None:
    """Build in `directory` from now on, in this process: for exports whose user's cache cannot be written."""
    global _redirected  # noqa: PLW0603 - one cache a process
    _redirected = Path(directory)


def content_key(parts: dict[str, Any]) -> str:
    """SHA-256, hex, over canonical JSON of everything that decides what is built."""
    return hashlib.sha256(
        json.dumps(parts, sort_keys=True, separators=(",", ":")).encode("utf-8", "surrogatepass")
    ).hexdigest()


def find(directory: Path, key: str, suffix: str) -> Build | None:
    """The finished build of `key`, or None."""
    path = _place(directory, key, suffix)
    try:
        if not path.is_file():
            return None
        record = json.loads(path.with_suffix(".json").read_text())
        return Build(path, str(record["log"]), float(record["seconds"]), True)
    except (OSError, ValueError, KeyError):
        return None  # an interrupted or damaged record, or a directory of another user's: build again


@contextmanager
def workspace(directory: Path) -> Iterator[Path]:
    """A private directory on the cache's file system, removed at the end."""
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        temporary = tempfile.TemporaryDirectory(prefix=".build-", dir=directory)
    except OSError as error:
        raise CacheError(
            f"kernel cache {str(directory)!r} cannot be written ({error.strerror}): "
            f"set {CACHE_VARIABLE} to a directory of yours"
        ) from error
    with temporary as name:
        yield Path(name)


def publish(directory: Path, key: str, suffix: str, built: Path, *, log: str, seconds: float) -> Build:
    """Move `built`, a file in a `workspace` of the same cache, to its place."""
    path = _place(directory, key, suffix)
    try:
        path.parent.mkdir(mode=0o700, exist_ok=True)
        record = built.with_suffix(".record")
        record.write_text(json.dumps({"log": log, "seconds": round(seconds, 4)}))
        os.replace(record, path.with_suffix(".json"))  # first: a file in place always has its record
        os.replace(built, path)
    except OSError as error:
        raise CacheError(f"kernel cache {str(directory)!r} cannot be written: {error.strerror}") from error
    return Build(path, log, seconds, False)


def _place(directory: Path, key: str, suffix: str) -> Path:
    return directory / key[:2] / f"{key}{suffix}"
