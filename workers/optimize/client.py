"""Start `python -m warpsmith.workers.optimize` for one request.

Standard library only: the service has no torch.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

from warpsmith import IMPORT_ROOT

QUIET_PROFILER = "99"
"""A log level above every message of torch's profiler."""


class Refused(Exception):  # noqa: N818 - named for what happened
    """The request cannot be done as it is.

    `document` names the field, what was found and what was expected.
    """

    def __init__(self, document: dict[str, Any]) -> None:
        super().__init__(str(document["message"]))
        self.document = document


class Died(Exception):  # noqa: N818 - named for what happened
    """The process ended without an answer."""


def ask(request: dict[str, Any]) -> dict[str, Any]:
    """Answer one request in a process of its own. Raises Refused, Died.

    The process has the caller's environment: it runs the caller's own code. Its progress goes to the caller's standard
    error.
    """
    root = str(IMPORT_ROOT)
    path = os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH")]))
    done = subprocess.run(
        [sys.executable, "-P", "-m", "warpsmith.workers.optimize"],
        input=json.dumps(request) + "\n",
        stdout=subprocess.PIPE,
        text=True,
        check=False,
        env={"KINETO_LOG_LEVEL": QUIET_PROFILER, **os.environ, "PYTHONPATH": path},
    )
    lines = done.stdout.splitlines()
    if done.returncode != 0 or not lines:
        how = f"signal {-done.returncode}" if done.returncode < 0 else f"exit code {done.returncode}"
        raise Died(f"the process that runs the model ended with {how}")
    answer: dict[str, Any] = json.loads(lines[-1])
    if "error" in answer:
        raise Refused(answer["error"])
    result: dict[str, Any] = answer["result"]
    return result
