"""Devices of this machine and tools for judging, found without importing torch."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from warpsmith import IMPORT_ROOT
from warpsmith.kernels_db.job.languages import LANGUAGES, of_device
from warpsmith.kernels_db.spec.target import Target
from warpsmith.workers.judge.machine.host import total_bytes
from warpsmith.workers.judge.machine.processor import cpu_name

NVIDIA_SMI_TIMEOUT_S = 20
FIELDS = ("index", "name", "compute_cap", "uuid", "memory.total", "mig.mode.current")
QUERY = (f"--query-gpu={','.join(FIELDS)}", "--format=csv,noheader,nounits")
"""The options of nvidia-smi that list GPUs, memory in MiB."""
WHOLE = re.compile(r"GPU (\d+): ")
SLICE = re.compile(r"\s+MIG (\S+)\s+Device\s+(\d+): \(UUID: (MIG-[^)]+)\)")
SLICE_SIZE = re.compile(r"\.(\d+)gb")
"""Lines of `nvidia-smi -L`, and the memory in a slice's profile, such as 1g.10gb."""
COMPILERS = ("c++", "g++", "clang++")


class CannotJudge(RuntimeError):  # noqa: N818 - named for what is so
    """This machine lacks a part that judging needs; the message names each, with its remedy."""


@dataclass(frozen=True)
class Gpu:
    """One CUDA GPU, or one MIG slice of it: what a CUDA process may use alone.

    `capability` is NVIDIA's compute capability, "9.0"; `uuid` as CUDA_VISIBLE_DEVICES takes it; `slice_number` counts
    the slices of the GPU `index`, None of a whole one.
    """

    index: int
    name: str
    capability: str
    uuid: str
    memory_bytes: int | None = None
    slice_number: int | None = None

    @property
    def target(self) -> str:
        """The target that this GPU serves, as `cuda:sm_90`."""
        return f"cuda:sm_{self.capability.replace('.', '')}"

    @property
    def label(self) -> str:
        """The device's name on its host: gpu0, or gpu0-mig1."""
        return f"gpu{self.index}" + ("" if self.slice_number is None else f"-mig{self.slice_number}")


def cpu_target() -> str:
    """Return this machine's CPU as a target."""
    return str(Target.parse("cpu"))


def gpus() -> list[Gpu]:
    """List the CUDA GPUs of the driver that CUDA_VISIBLE_DEVICES leaves visible.

    A GPU that is partitioned (MIG) is listed as its slices. None where there is no driver, or it fails.
    """
    status, answer = _ask_driver(*QUERY)
    if status != 0:
        return []
    found = parse_gpus(answer)
    if "Enabled" in answer:
        found = split_gpus(found, answer, _ask_driver("-L")[1])
    return select_visible(found, os.environ.get("CUDA_VISIBLE_DEVICES"))


def select_visible(found: Sequence[Gpu], named: str | None) -> list[Gpu]:
    """Return those of `found` that a value of CUDA_VISIBLE_DEVICES names, in its order.

    It names GPUs by index or by the beginning of a UUID, slices by theirs (MIG-...); None names all. As in CUDA, names
    after an unknown one do not count. An index names the first slice of a partitioned GPU.
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
    return name.startswith(("GPU-", "MIG-")) and uuid.startswith(name)


def driver_fault() -> str | None:
    """Return the NVIDIA driver's error where it fails; None where it works, or is not installed."""
    status, answer = _ask_driver(*QUERY)
    if status in (None, 0):
        return None
    first = next((line.strip() for line in answer.splitlines() if line.strip()), f"status {status}")
    return f"the NVIDIA driver fails ({first})"


def _ask_driver(*options: str) -> tuple[int | None, str]:
    """Run nvidia-smi and return its status and answer; the status is None without that program."""
    program = shutil.which("nvidia-smi")
    if program is None:
        return None, ""
    command = [program, *options]
    try:
        result = subprocess.run(command, check=False, capture_output=True, text=True, timeout=NVIDIA_SMI_TIMEOUT_S)
    except (OSError, subprocess.TimeoutExpired) as error:
        return 1, f"nvidia-smi: {error}"
    return result.returncode, result.stdout if result.returncode == 0 else result.stdout + result.stderr


def parse_gpus(listing: str) -> list[Gpu]:
    """Parse an answer to `QUERY`; skips lines of another form."""
    found = []
    for parts in _split_lines(listing):
        memory = int(parts[4]) * 2**20 if parts[4].isdigit() else None
        found.append(Gpu(int(parts[0]), parts[1], parts[2], parts[3], memory))
    return found


def split_gpus(found: Sequence[Gpu], listing: str, slices: str) -> list[Gpu]:
    """Return the slices of GPUs that are partitioned, and the other GPUs as they are.

    `listing` is the answer to `QUERY`, `slices` that to `nvidia-smi -L`. A partitioned GPU without a slice is none that
    CUDA can use.
    """
    partitioned = {int(parts[0]) for parts in _split_lines(listing) if parts[5] == "Enabled"}
    by_gpu: dict[int, list[tuple[str, int, str]]] = {}
    index = -1
    for line in slices.splitlines():
        if whole := WHOLE.match(line):
            index = int(whole[1])
        elif part := SLICE.match(line):
            by_gpu.setdefault(index, []).append((part[1], int(part[2]), part[3]))
    devices: list[Gpu] = []
    for gpu in found:
        if gpu.index not in partitioned:
            devices.append(gpu)
            continue
        for profile, number, uuid in by_gpu.get(gpu.index, []):
            size = SLICE_SIZE.search(profile)
            memory = None if size is None else int(size[1]) * 2**30
            name = f"{gpu.name}, MIG {profile}"
            devices.append(replace(gpu, name=name, uuid=uuid, memory_bytes=memory, slice_number=number))
    return devices


def _split_lines(listing: str) -> list[list[str]]:
    lines = ([part.strip() for part in line.split(",")] for line in listing.splitlines())
    return [
        parts
        for parts in lines
        if len(parts) == len(FIELDS) and parts[0].isdigit() and parts[2].replace(".", "", 1).isdigit()
    ]


def describe_device(target: str) -> dict[str, Any] | None:
    """Describe the device that a judge of `target` holds here: its name and memory; None where there is none."""
    if target.startswith("cpu:"):
        return {"name": cpu_name(), "memory_bytes": total_bytes()}
    gpu = next(iter(gpus()), None)
    return None if gpu is None else {"name": gpu.name, "memory_bytes": gpu.memory_bytes}


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
    """Return the command that installs extras of Warpsmith: `judge`, `service`, `worker` or `judge,cute`.

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
    known = LANGUAGES[language]
    if known.compiler == "g++" and compiler() is None:
        missing.append("no C++ compiler was found: apt-get install g++ (or set CXX)")
    if known.compiler == "triton" and not installed("triton"):
        missing.append(f"triton is not installed: {extra}")
    if known.compiler == "nvrtc" and not has_cuda_core():
        missing.append(f"cuda-core is not installed: {extra}")
    if known.compiler == "cute" and not (installed("cutlass") and has_cuda_core()):
        missing.append(f"CuTe DSL is not installed: {install_extra('judge,cute')}")
    if known.compiler == "tilelang" and not (installed("tilelang") and has_cuda_core()):
        missing.append(f"TileLang is not installed: {install_extra('judge,tilelang')}")
    return missing


def describe_compilers(target: str) -> dict[str, dict[str, list[str]]]:
    """Describe what a judge worker of `target` compiles here: by target and language, what is missing for it.

    A judge of a processor compiles for any GPU, too, told under the type of device alone: `cuda`. That of a GPU, whose
    runners never interpret, for its own target.
    """
    device = target.partition(":")[0]
    served = {target: device, "cuda": "cuda"} if device == "cpu" else {target: device}
    return {
        name: {language: missing_for_judge(language) for language in of_device(kind, gated=True)}
        for name, kind in served.items()
    }


def require_judge(language: str = "cpp") -> None:
    """Raise CannotJudge where this machine lacks what candidates in `language` need."""
    if missing := missing_for_judge(language):
        raise CannotJudge("\n".join([f"this machine cannot judge {language} candidates:", *missing]))


def has_cuda_core() -> bool:
    """Check whether cuda-core, which compiles CUDA candidates, can be imported."""
    return installed("cuda") and installed("cuda.core")
