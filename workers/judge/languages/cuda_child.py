"""`python -m workers.judge.languages.cuda_child REQUEST ANSWER`: NVRTC for the sources of one candidate, whose Python
is never run.
"""

from __future__ import annotations

import dataclasses
import json
import sys
from pathlib import Path

from kernels_db.runtime import CompileError, cuda


def main() -> None:
    """Build every source of the request; the answer holds each build, or the first error."""
    request = json.loads(Path(sys.argv[1]).read_text())
    answer: dict[str, object]
    try:
        builds = [cuda.build(entry["source"], request["arch"], entry["flags"]) for entry in request["sources"]]
        answer = {"builds": [{**dataclasses.asdict(build), "path": str(build.path)} for build in builds]}
    except CompileError as error:
        answer = {"error": error.message, "log": error.log}
    Path(sys.argv[2]).write_text(json.dumps(answer))


if __name__ == "__main__":
    main()
