"""Python's garbage collector, while a process imports what it keeps until it ends."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def imports_kept() -> Iterator[None]:
    """Collect no garbage while the block imports modules, and never walk through what it made.

    To walk through torch's half a million objects, all of which stay, is a fifth of its import, and takes as long
    again when the process ends. Not in a process that has run long: what is garbage by then stays as well.
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        if enabled:
            gc.enable()
