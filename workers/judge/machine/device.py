"""The device that a job is judged on: where values and buffers are, and whether it works.

It also supplies the device's part of a verdict.

A CPU, or the first GPU that CUDA shows this process. A job for a GPU that is not here is taken on the CPU as far as
that goes: compiled, and Triton interpreted.
"""

from __future__ import annotations

import os
import platform
import shlex
import subprocess
import sys
from abc import ABC, abstractmethod
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from typing import Any, Literal

import torch

from warpsmith.kernels_db.job.memory import GPU_SHARE
from warpsmith.workers.judge.machine import gpu
from warpsmith.workers.judge.machine.clock_lease import PROCESSOR
from warpsmith.workers.judge.machine.host import available_bytes, total_bytes
from warpsmith.workers.judge.machine.processor import caches, cpu_name, vector_extensions

_PROOF_ELEMENTS = 1 << 20
_PROOF_S = 120.0


class Device(ABC):
    """What the referee asks of a device. One thread uses it."""

    kind: Literal["cpu", "cuda"]
    torch: torch.device
    name: str
    lease: str
    """The device's name among this host's, for the lock that is held while timing."""

    @property
    @abstractmethod
    def identity(self) -> dict[str, Any]:
        """What a measured peak depends on; also the verdict's `device`, with the peaks beside it."""

    @abstractmethod
    def free_bytes(self) -> int:
        """Memory for buffers that is available now."""

    @abstractmethod
    def all_bytes(self) -> int:
        """Return the bytes that would be available with nothing else on the device."""

    def release(self) -> None:  # noqa: B027 - a CPU's memory goes back by itself
        """Give back what this process keeps for later."""

    @abstractmethod
    def fault(self) -> str | None:
        """Run a known-good computation; None where it gives the known result.

        Otherwise the text says what happened instead.
        """

    def lost(self) -> str | None:
        """Try the device in a fresh process; None where it works there.

        Otherwise the text says what happened: no process of this host can use it.
        """
        return None

    def versions(self) -> dict[str, str]:
        """Return the versions that a time depends on besides the device."""
        return {
            "python": platform.python_version(),
            "torch": torch.__version__,
            "system": f"{platform.system()} {platform.release()}",
        }


class Cpu(Device):
    """This host's processor."""

    kind: Literal["cpu", "cuda"] = "cpu"
    torch = torch.device("cpu")

    def __init__(self, cores: int) -> None:
        self.name = cpu_name()
        self.lease = PROCESSOR
        self.cores = cores
        self._compiler = _compiler_release()

    @property
    def identity(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "type": "cpu",
            "arch": platform.machine(),
            "cores": self.cores,
            "isa": vector_extensions(),
            "caches": caches(),
        }

    def free_bytes(self) -> int:
        return available_bytes()

    def all_bytes(self) -> int:
        return total_bytes()

    def fault(self) -> str | None:
        return None

    def versions(self) -> dict[str, str]:
        # It builds candidates here, and what torch.compile generates.
        return super().versions() | ({} if self._compiler is None else {"compiler": self._compiler})


class Gpu(Device):
    """The first GPU that CUDA shows this process. Making it makes the process's context."""

    kind: Literal["cpu", "cuda"] = "cuda"
    torch = torch.device("cuda", 0)

    def __init__(self) -> None:
        """Raises RuntimeError or OSError where the GPU cannot be used."""
        gpu.initialise()
        self._facts = torch.cuda.get_device_properties(0)
        self.name = str(self._facts.name)
        self.lease = str(self._facts.uuid)
        self.capability = 10 * self._facts.major + self._facts.minor
        self.arch = f"sm_{self.capability}"
        self._driver = _driver_release()

    @property
    def identity(self) -> dict[str, Any]:
        facts = self._facts
        return {
            "name": self.name,
            "type": "cuda",
            "arch": self.arch,
            "multiprocessors": facts.multi_processor_count,
            "memory_bytes": facts.total_memory,
            "caches": {"L2": facts.L2_cache_size},
            "shared_bytes_per_block": gpu.attribute("MAX_SHARED_MEMORY_PER_BLOCK_OPTIN"),
            "registers_per_multiprocessor": gpu.attribute("MAX_REGISTERS_PER_MULTIPROCESSOR"),
        }

    def free_bytes(self) -> int:
        return int(GPU_SHARE * torch.cuda.mem_get_info(0)[0])

    def all_bytes(self) -> int:
        return int(GPU_SHARE * torch.cuda.mem_get_info(0)[1])

    def release(self) -> None:
        with suppress(RuntimeError):  # a context that fell over: `fault` finds it
            torch.cuda.empty_cache()

    def fault(self) -> str | None:
        """Write, compute and read back on the GPU.

        A fault of another process's context leaves this one whole, unless the GPU itself fell over.
        """
        try:
            numbers = torch.arange(_PROOF_ELEMENTS, device=self.torch, dtype=torch.float64)
            found = float((numbers * 2.0 + 1.0).sum())
        except RuntimeError as error:
            return str(error).splitlines()[0]
        expected = float(_PROOF_ELEMENTS) ** 2
        return None if found == expected else f"a sum of 2i+1 gave {found}, expected {expected}"

    def lost(self) -> str | None:
        proof = f"from {__name__} import Gpu; import sys; sys.exit(Gpu().fault())"
        try:
            tried = subprocess.run(
                [sys.executable, "-P", "-c", proof], capture_output=True, text=True, timeout=_PROOF_S, check=False
            )
        except subprocess.TimeoutExpired:
            return f"a fresh process had no answer of it within {_PROOF_S:g} s"
        said = tried.stderr.strip().splitlines()
        return None if tried.returncode == 0 else (said[-1] if said else f"exit status {tried.returncode}")

    def versions(self) -> dict[str, str]:
        found = {**super().versions(), "cuda": str(torch.version.cuda), "driver": self._driver}
        for name in (
            "triton",
            "nvidia-cutlass-dsl",
            "tilelang",
        ):  # torch compiles with the first, candidates may be in either
            with suppress(PackageNotFoundError):
                found[name] = version(name)
        return found


def open_gpu() -> Gpu | None:
    """Return the GPU that CUDA shows this process, None where there is none."""
    return Gpu() if torch.cuda.is_available() else None


def _compiler_release() -> str | None:
    """Return the first line of the C++ compiler's version text; None where there is none."""
    command = [*shlex.split(os.environ.get("CXX") or "g++"), "--version"]
    try:
        said = subprocess.run(command, capture_output=True, text=True, timeout=20, check=True)
        return said.stdout.splitlines()[0]
    except (OSError, subprocess.SubprocessError, IndexError):
        return None


def _driver_release() -> str:
    """Return the driver's release by nvidia-smi.

    Where that program is absent, the CUDA version that the driver serves.
    """
    command = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    try:
        said = subprocess.run(command, capture_output=True, text=True, timeout=20, check=True)
        return said.stdout.split()[0]
    except (OSError, subprocess.SubprocessError, IndexError):
        return f"serves CUDA {gpu.driver_version()}"
