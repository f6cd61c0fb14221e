"""Where a judge keeps the binaries of a candidate, below its cache directory. Standard library only."""

from __future__ import annotations

import hashlib
from pathlib import Path


def kernel_cache(cache: Path, source: str) -> Path:
    """Return the directory of one candidate's binaries.

    One directory per source, so that a running candidate cannot reach another's by its own name.
    """
    return cache / "kernels" / hashlib.sha256(source.encode()).hexdigest()[:32]
