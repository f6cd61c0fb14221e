"""Devices of this machine and tools for judging, found without importing torch."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from warpsmith import IMPORT_ROOT
from warpsmith.kernels_db.spec.target import Target

NVIDIA_SMI_TIMEOUT_S = 20
COMPILERS = ("c++", "g++", "clang++")


class CannotJudge(RuntimeError):  # noqa: N818 - named for what is so
    """This machine lacks a part that judging needs; the message names each, with its remedy."""


@dataclass(frozen=True)
class Gpu:
    """One CUDA GPU.

    `capability` is NVIDIA's compute capability, "9.0"; `uuid` as CUDA_VISIBLE_DEVICES takes it.
    """

    index: int
    name: str
    capability: str
    uuid: str

    @property
    def target(self) -> str:
        """The target that this GPU serves, as `cuda:sm_90`."""
        return f"cuda:sm_{self.capability.replace('.', '')}"


def cpu_target() -> str:
    """Return this machine's CPU as a target."""
    return str(Target.parse("cpu"))


def gpus() -> list[Gpu]:
    """List the CUDA GPUs of the driver that CUDA_VISIBLE_DEVICES leaves visible.

    None where there is no driver, or it fails.
    """
    status, answer = _ask_driver()
    return select_visible(parse_gpus(answer), os.environ.get("CUDA_VISIBLE_DEVICES")) if status == 0 else []


def select_visible(found: Sequence[Gpu], named: str | None) -> list[Gpu]:
    """Return those of `found` that a value of CUDA_VISIBLE_DEVICES names, in its order.

    It names GPUs by index or by the beginning of a UUID; None names all. As in CUDA, names after an unknown one do not
    count.
    """
    if named is None:
        return list(found)
    chosen: list[Gpu] = []
    for name in (part.strip() for part in named.split(",")):
        gpu = next((gpu for gpu in found if name == str(gpu.index) or _matches_uuid(gpu.uuid, name)), None)
        if gpu is None:
            break
        if gpu not in chosen:
            chosen.append(gpu)
    return chosen


def _matches_uuid(uuid: str, name: str) -> bool:
    return name.startswith("GPU-") and uuid.startswith(name)


def driver_fault() -> str | None:
    """Return the NVIDIA driver's error where it fails; None where it works, or is not installed."""
    status, answer = _ask_driver()
    if status in (None, 0):
        return None
    first = next((line.strip() for line in answer.splitlines() if line.strip()), f"status {status}")
    return f"the NVIDIA driver fails ({first})"


def _ask_driver() -> tuple[int | None, str]:
    """Run nvidia-smi and return its status and answer; the status is None without that program."""
    program = shutil.which("nvidia-smi")
    if program is None:
        return None, ""
    query = [program, "--query-gpu=index,name,compute_cap,uuid", "--format=csv,noheader"]
    try:
        result = subprocess.run(query, check=False, capture_output=True, text=True, timeout=NVIDIA_SMI_TIMEOUT_S)
    except (OSError, subprocess.TimeoutExpired) as error:
        return 1, f"nvidia-smi: {error}"
    return result.returncode, result.stdout if result.returncode == 0 else result.stdout + result.stderr


def parse_gpus(listing: str) -> list[Gpu]:
    """Parse an answer to `--query-gpu=index,name,compute_cap,uuid`; skips lines of another form."""
    found = []
    for line in listing.splitlines():
        parts = [part.strip() for part in line.split(",")]
        if len(parts) == 4 and parts[0].isdigit() and parts[2].replace(".", "", 1).isdigit():
            found.append(Gpu(int(parts[0]), parts[1], parts[2], parts[3]))
    return found


def installed(module: str) -> bool:
    """Check whether a module can be imported; does not import it."""
    return importlib.util.find_spec(module) is not None


def compiler() -> str | None:
    """Find the C++ compiler for `cpp` candidates: `CXX` where set, else the first that exists."""
    named = os.environ.get("CXX")
    return shutil.which(named) if named else next(filter(None, map(shutil.which, COMPILERS)), None)


def torch_cuda() -> str | None:
    """Read the CUDA version that the installed torch is built for; None without CUDA or torch.

    It is in torch's own version file; importing torch would take seconds.
    """
    specification = importlib.util.find_spec("torch")
    if specification is None or specification.origin is None:
        return None
    file = Path(specification.origin).parent / "version.py"
    found = re.search(r"^cuda\b[^=\n]*= '([\d.]+)'", file.read_text(encoding="utf-8"), re.MULTILINE)
    return found[1] if found else None


def install_extra(extra: str, import_root: Path = IMPORT_ROOT) -> str:
    """Return the command that installs an extra of Warpsmith: `judge`, `service` or `worker`.

    For a checkout it is the checkout's own, otherwise that of the installed package.
    """
    if (import_root.parent / "constraints.txt").is_file():
        return f"pip install -c constraints.txt -e '.[{extra}]'"
    return f"pip install 'warpsmith[{extra}]'"


def missing_for_judge(language: str = "cpp") -> list[str]:
    """List what this machine lacks to judge candidates in `language`, each with its remedy."""
    extra = install_extra("judge")
    missing = []
    if not installed("torch"):
        missing.append(f"torch is not installed: {extra}")
    if language == "cpp" and compiler() is None:
        missing.append("no C++ compiler was found: apt-get install g++ (or set CXX)")
    if language == "triton" and not installed("triton"):
        missing.append(f"triton is not installed: {extra}")
    if language == "cuda" and not has_cuda_core():
        missing.append(f"cuda-core is not installed: {extra}")
    return missing


def require_judge(language: str = "cpp") -> None:
    """Raise CannotJudge where this machine lacks what candidates in `language` need."""
    if missing := missing_for_judge(language):
        raise CannotJudge("\n".join([f"this machine cannot judge {language} candidates:", *missing]))


def has_cuda_core() -> bool:
    """Check whether cuda-core, which compiles CUDA candidates, can be imported."""
    return installed("cuda") and installed("cuda.core")
