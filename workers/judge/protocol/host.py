"""Check that this host can judge the jobs of a bundle."""

from __future__ import annotations

import json
import platform
import subprocess
import sys
import tempfile
from pathlib import Path

from warpsmith.workers.judge.protocol.answers import BadDirectory
from warpsmith.workers.judge.protocol.client import judge_environment

_PROBE_TIMEOUT_S = 180.0
_PROBE = """
import json, numpy, torch
gpu = torch.cuda.get_device_capability(0) if torch.cuda.is_available() else None
print(json.dumps({"torch": torch.__version__, "gpu": gpu and "cuda:sm_%d%d" % gpu}))
"""


def check_host(target: str, cache: Path) -> None:
    """Raise BadDirectory where this host cannot judge for `target`.

    Without this a judge would do what it can on another device and answer `ambiguous`, job by job.
    """
    device, _, architecture = target.partition(":")
    if device == "cpu" and architecture != platform.machine():
        raise BadDirectory(
            f"target: found {target} in the bundle, expected cpu:{platform.machine()}, which this host is"
        )
    with tempfile.TemporaryDirectory(prefix="warpsmith-probe-") as home:
        command = [sys.executable, "-P", "-c", _PROBE]
        environment = judge_environment(cache, Path(home))
        try:
            said = subprocess.run(
                command,
                env=environment,
                cwd=home,
                capture_output=True,
                text=True,
                timeout=_PROBE_TIMEOUT_S,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise BadDirectory(
                f"torch: found it not imported within {_PROBE_TIMEOUT_S:g} s, expected it to work here"
            ) from None
    if said.returncode != 0:
        last = (said.stderr.strip().splitlines() or [f"exit status {said.returncode}"])[-1]
        raise BadDirectory(
            f"torch: found {last!r}, expected torch and numpy in the environment of {sys.executable} "
            "(the judge starts clean: neither PYTHONPATH nor your home directory counts)"
        )
    found = json.loads(said.stdout)
    if device == "cuda" and found["gpu"] != target:
        here = f"{found['gpu']}, the first GPU here" if found["gpu"] else f"no GPU that torch {found['torch']} can use"
        raise BadDirectory(f"target: found {here}, expected {target}, for which the jobs are")
