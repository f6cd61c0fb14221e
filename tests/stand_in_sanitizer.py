"""A program that takes the place of compute-sanitizer where there is none: it is called alike, runs its command, and
writes the report of its tool that a file `report` beside it has (of a list of hazards, that under `hazard`), or hangs
where that says so.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path


def main() -> int:
    """Do as the file says, for the tool that it names."""
    beside = Path(sys.argv[0]).resolve().parent
    at = next(at for at in range(1, len(sys.argv), 2) if not sys.argv[at].startswith("--"))
    options = dict(zip(sys.argv[1:at:2], sys.argv[2:at:2], strict=True))
    tool, said = options["--tool"], json.loads((beside / "report").read_text())
    asked = options.get("--racecheck-report", tool)
    if said.get(tool) == "hang":
        time.sleep(600)
    ended = subprocess.run(sys.argv[at:], check=False)
    (beside / tool).write_text(json.dumps({"status": ended.returncode, "variables": sorted(os.environ)}))
    if asked in said:
        Path(options["--log-file"]).write_text(said[asked])
    return 0


if __name__ == "__main__":
    sys.exit(main())
