"""Runs a script or a module with its calls recorded: `python -m warpsmith.workers.recording [-m] WHAT ARGUMENTS...`.

As `python -m cProfile` does. `WARPSMITH_RECORD` names the file; without it that is `calls.json` here.
"""

from __future__ import annotations

import os
import runpy
import sys
from pathlib import Path

from warpsmith.workers.recording.start import VARIABLE, start

USAGE = f"usage: [{VARIABLE}=calls.json] python -m warpsmith.workers.recording [-m MODULE | SCRIPT] [ARGUMENTS...]"


def main(arguments: list[str]) -> int:
    """Run what `arguments` name as `python` itself would; returns 2 where they name nothing."""
    module = arguments[:1] == ["-m"]
    rest = arguments[1:] if module else arguments
    if not rest or rest[0] in ("-h", "--help"):
        sys.stderr.write(f"{USAGE}\n")
        return 2
    os.environ.setdefault(VARIABLE, "calls.json")
    os.environ[VARIABLE] = str(Path(os.environ[VARIABLE]).absolute())  # the script may change its directory
    start()
    sys.argv = list(rest)
    if module:
        sys.path[0] = str(Path.cwd())
        runpy.run_module(rest[0], run_name="__main__", alter_sys=True)
    else:
        sys.path[0] = str(Path(rest[0]).resolve().parent)
        runpy.run_path(rest[0], run_name="__main__")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
