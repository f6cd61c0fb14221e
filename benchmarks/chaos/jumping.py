"""A program whose clock jumps: `python -m benchmarks.chaos.jumping FILE MODULE [ARGUMENT ...]`.

`time.time` of the process and of those that it forks is off by the seconds that FILE holds, read at each call. The
monotonic clock goes on, as it does where a machine's clock is set.
"""

from __future__ import annotations

import runpy
import sys
import time
from pathlib import Path


def install(file: Path) -> None:
    """Have this process's `time.time` be off by what `file` holds."""
    true_time = time.time

    def jumped() -> float:
        return true_time() + float(file.read_text() or 0)

    time.time = jumped


if __name__ == "__main__":
    install(Path(sys.argv[1]))
    sys.argv = sys.argv[2:]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
