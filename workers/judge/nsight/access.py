"""Find `ncu`, Nsight Compute's command line, and whether the driver opens its counters.

Standard library only.

Source: NVIDIA's page on ERR_NVGPUCTRPERM; /proc/driver/nvidia/params of its Linux driver.
"""

from __future__ import annotations

import glob
import os
import shutil
from pathlib import Path
from typing import Literal

from warpsmith.workers.judge.machine import process_control

VARIABLE = "WARPSMITH_NCU"
"""The variable that tells a judge where `ncu` is; OFF where it is not to be used.

Without it PATH and NVIDIA's own places are searched.
"""
OFF = "off"
CAP_SYS_ADMIN = 21

Permission = Literal["everybody", "administrator", "refused"]
"""Who may read the counters.

everybody: they are open to all; or nothing is known, and a try tells. administrator: this process may if it holds
CAP_SYS_ADMIN, so a profiled process has to keep it. refused: not this process.
"""

_PARAMETERS = Path("/proc/driver/nvidia/params")
_PLACES = ("/usr/local/cuda/bin/ncu", "/opt/nvidia/nsight-compute/*/ncu")


def find(named: str | None) -> str | None:
    """Return the program's path; None where there is none, or it is switched off.

    `named`: by a setting, or None.
    """
    if named == OFF:
        return None
    if named:
        return shutil.which(named)
    homes = [
        os.path.join(os.environ[name], "bin", "ncu") for name in ("CUDA_HOME", "CUDA_PATH") if os.environ.get(name)
    ]
    places = [place for pattern in (*homes, *_PLACES) for place in sorted(glob.glob(pattern), reverse=True)]
    return shutil.which("ncu") or next((place for place in places if os.access(place, os.X_OK)), None)


def permission(parameters: Path = _PARAMETERS) -> Permission:
    """Return who may read the counters here, by the driver's file and our capabilities."""
    try:
        said = parameters.read_text(errors="replace")
    except OSError:
        said = ""
    values = dict(line.partition(":")[::2] for line in said.splitlines())
    restricted = values.get("RmProfilingAdminOnly", "").strip()
    if restricted == "0":
        return "everybody"
    if int(process_control.status(os.getpid()).get("CapEff", "0"), 16) >> CAP_SYS_ADMIN & 1:
        return "administrator"
    return "refused" if restricted == "1" else "everybody"
