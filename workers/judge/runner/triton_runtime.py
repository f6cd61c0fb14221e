"""Set up Triton in a process that launches on a GPU.

It holds what a runner sets up before it loads a candidate, and what a fork server loads once for all of its runners.

No compiler should run while a runner holds the device, so everything that Triton builds is made before: kernels and, up
to Triton 3.6, a C launcher for each signature by the compile step (`triton_child`), Triton's own C module by `preload`.

Triton is imported with this module: import it where TRITON_INTERPRET is not set, and only when needed.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
import triton
from triton import knobs
from triton.backends.compiler import GPUTarget
from triton.backends.nvidia import driver as nvidia
from triton.compiler.compiler import make_backend
from triton.runtime import cache
from triton.testing import do_bench

TUNING_MS = (5, 20)
"""Milliseconds of warm-up and measurement of one configuration.

Triton's own 25 and 100 ms would hold the device for seconds.
"""

_PRIVATE = "triton"
_build = nvidia.compile_module_from_src
_modules: dict[tuple[str, str], ModuleType] = {}


class Overlay(cache.FileCacheManager):  # type: ignore[misc]  # Triton has no stubs
    """Reads what the compile step prepared under TRITON_CACHE_DIR, writes elsewhere.

    It writes to a directory of the process, so that a runner needs no right to change what later runners load.
    """

    def __init__(self, key: str, override: bool = False, dump: bool = False) -> None:
        self._prepared = os.path.join(knobs.cache.dir, key)
        self.key = key
        self.cache_dir = os.path.join(os.getcwd(), _PRIVATE, key)
        self.lock_path = os.path.join(self.cache_dir, "lock")

    def get_file(self, filename: str) -> str | None:
        """Return the path of a file of this key: prepared, or made here."""
        for directory in (self._prepared, self.cache_dir):
            path = os.path.join(directory, filename)
            if os.path.exists(path):
                return path
        return None

    def has_file(self, filename: str) -> bool:
        """Check whether there is such a file."""
        return self.get_file(filename) is not None

    def _make_path(self, filename: str) -> str:
        found = self.get_file(filename)
        return found if found is not None else os.path.join(self.cache_dir, filename)

    def put(self, data: bytes | str, filename: str, binary: bool = True) -> str:
        """Write a file of this key into the process's own directory."""
        os.makedirs(self.cache_dir, exist_ok=True)
        path = os.path.join(self.cache_dir, filename)
        unfinished = f"{path}.{os.getpid()}"
        content = data if isinstance(data, bytes) else str(data).encode()
        with open(unfinished, "wb") as file:
            file.write(content)
        os.replace(unfinished, path)
        return path


def preload(directory: Path, capability: int) -> None:
    """Load what every Triton process loads, in a process that will fork them. Starts no CUDA.

    Args:
        directory: where Triton's C module is kept, built once (about a second); private to the judge.
        capability: of the device, 90 for sm_90.

    Raises:
        CalledProcessError, RuntimeError, AssertionError: there is no C compiler, or no libcuda.
    """
    earlier = os.environ.get("TRITON_CACHE_DIR")
    os.environ["TRITON_CACHE_DIR"] = str(directory)
    nvidia.compile_module_from_src = _built_once
    try:
        nvidia.CudaUtils()
    finally:
        if earlier is None:
            del os.environ["TRITON_CACHE_DIR"]
        else:
            os.environ["TRITON_CACHE_DIR"] = earlier
    cache.triton_key()  # reads all of Triton's files
    make_backend(GPUTarget("cuda", capability, 32)).hash()  # asks ptxas for its version


def install() -> None:
    """Set up this process, which holds a GPU, for one candidate.

    Call it before the candidate is loaded. Kernels with tensor descriptors get scratch memory, tuning is short, and
    prepared files are only read.
    """
    triton.set_allocator(scratch)
    knobs.cache.manager_class = Overlay
    nvidia.compile_module_from_src = _built_once
    nvidia.CudaDriver.get_benchmarker = _benchmarker


def tune_by_one_call() -> None:
    """Have an autotuner call each configuration once and take the first, for a process where time says nothing.

    A sanitizer looks at every launch: one of each configuration is what it needs, and the hundreds by which Triton
    times one, each after a 256 MB buffer was cleared, take it most of its time. Call it after `install`.
    """
    nvidia.CudaDriver.get_benchmarker = _one_call


def scratch(size: int, alignment: int, stream: int | None) -> torch.Tensor:
    """Allocate `size` bytes on the current device, which torch's allocator aligns to 512."""
    return torch.empty(size, dtype=torch.int8, device="cuda")


def _benchmarker(driver: Any) -> Callable[..., Any]:
    warmup, rep = TUNING_MS
    return functools.partial(do_bench, warmup=warmup, rep=rep)


def _one_call(driver: Any) -> Callable[..., Any]:
    def call(kernel: Callable[[], Any], quantiles: Sequence[float] | None = None, **_options: Any) -> Any:
        kernel()
        return 1.0 if quantiles is None else [1.0] * len(quantiles)  # ms, the same for every configuration

    return call


def _built_once(src: str, name: str, **options: Any) -> ModuleType:
    """Keep Triton's C modules, which it would load again whenever its driver is made."""
    found = _modules.get((name, src))
    if found is None:
        found = _modules[name, src] = _build(src=src, name=name, **options)
    return found
