"""One module a source: its kernels come from it, whichever thread asks first, and nothing is loaded before."""

from __future__ import annotations

import gc
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from warpsmith.kernels_db.runtime import cuda
from warpsmith.kernels_db.runtime.cache import Build

SOURCE = """
__device__ int shared;
extern "C" __global__ void put(int value) { shared = value; }
extern "C" __global__ void take(int* out) { *out = shared; }
"""
THREADS = 8


class Module:
    """cuda-core's ObjectCode: loaded with its first kernel, twice where two threads ask at once."""

    made: list[Module]

    def __init__(self, path: str) -> None:
        self.path, self.loads = path, 0
        self.handle: int | None = None
        Module.made.append(self)

    def get_kernel(self, name: str) -> tuple[str, int]:
        if self.handle is None:
            self.loads += 1
            together.wait()
            self.handle = id(self)
        return name, id(self)


together = threading.Event()


@pytest.fixture
def core(monkeypatch: pytest.MonkeyPatch) -> type[Module]:
    """Stubs of what needs a device: the driver's module, and a device's architecture."""
    Module.made = []
    together.clear()
    device = SimpleNamespace(arch="90", set_current=lambda: None)
    stub = SimpleNamespace(Device=lambda number: device, ObjectCode=SimpleNamespace(from_cubin=Module))
    monkeypatch.setattr(cuda, "core", lambda: stub)
    monkeypatch.setattr(cuda, "build", lambda source, arch, flags: Build(Path(f"/{arch}.cubin"), "", 0.0, True))
    return Module


def program(kernels: cuda.Kernels) -> cuda.Program:
    found: Any = kernels.put._program
    assert found is kernels.take._program
    return found  # type: ignore[no-any-return]


def test_the_kernels_of_a_source_come_from_one_module(core: type[Module]) -> None:
    together.set()
    asked = program(cuda.compile(SOURCE))
    assert asked.kernel("put", 0)[1] == asked.kernel("take", 0)[1]
    assert asked.kernel("put", 1)[1] != asked.kernel("put", 0)[1]
    assert [module.loads for module in core.made] == [1, 1]
    assert asked.module(0) == (core.made[0].handle, Path("/sm_90.cubin"))


def test_a_module_can_be_asked_for_before_any_launch(core: type[Module]) -> None:
    together.set()
    handle, path = program(cuda.compile(SOURCE)).module(0)
    assert (handle, path) == (core.made[0].handle, Path("/sm_90.cubin"))


def test_threads_that_launch_first_together_load_one_module(core: type[Module]) -> None:
    asked = program(cuda.compile(SOURCE))
    with ThreadPoolExecutor(THREADS) as pool:
        found = [pool.submit(asked.kernel, name, 0) for name in ("put", "take") * (THREADS // 2)]
        together.set()
        modules = {kernel.result()[1] for kernel in found}
    assert [module.loads for module in core.made] == [1]
    assert len(modules) == 1


def test_two_sources_share_nothing_and_leave_with_their_kernels(core: type[Module]) -> None:
    together.set()
    first, second = cuda.compile(SOURCE), cuda.compile(SOURCE)
    assert program(first).module(0)[0] != program(second).module(0)[0]
    assert {program(first), program(second)} <= set(cuda.programs)
    gone = id(program(second))
    del second
    gc.collect()
    assert gone not in {id(one) for one in cuda.programs}
