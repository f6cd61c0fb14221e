"""What a candidate leaves in device memory between its calls: nothing that a later call could use.

Variables of its modules must be after a call, byte for byte, what they were before it: a lock, or a counter that
returns to zero, passes; a table, a cached result or a count of calls does not. Scratch that torch's allocator keeps and
shared memory are spoilt before a call, so that one that reads what the last call left there computes nonsense. All of
it happens outside of what is timed, in the runner's own code.
"""

from __future__ import annotations

import ctypes
import functools
import importlib
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from warpsmith.kernels_db.job.languages import Compiler
from warpsmith.workers.judge.machine.cubin_symbols import Area, Variable, areas, own_variables
from warpsmith.workers.judge.runner.outputs import ContractError
from warpsmith.workers.judge.runner.shared_memory import spoil_shared

Lookup = Callable[[str], int | None]
"""The address of a module's variable by its name; None where the driver finds none."""

LONGEST_NAME = 120
REMEDY = (
    "expected variables of the device as the call found them: a counter that returns to zero, a lock that is free; "
    "scratch is for torch.empty in `run`, what is kept from call to call for nowhere"
)


@dataclass
class _Kept:
    """A stretch of one section of a loaded module, and its bytes before a call."""

    address: int
    size: int
    offset: int  # of its first byte in the section
    variables: tuple[Variable, ...]
    before: bytes = b""

    def name_at(self, position: int) -> str:
        """Name what lies at a byte of this stretch."""
        at = self.offset + position
        inside = [one.name for one in self.variables if one.offset <= at < one.offset + max(one.size, 1)]
        return inside[-1] if inside else "memory between its variables"


class DeviceState:
    """The variables of a process's modules, and how they were before the call that is under way."""

    def __init__(self, read: Callable[[int, int], bytes]) -> None:
        """`read`: copies bytes of the device, by address and size."""
        self._read = read
        self._kept: list[_Kept] = []
        self._known: set[int] = set()

    def watch(self, module: int, cubin: bytes | Path, lookup: Lookup) -> None:
        """Watch a module that was loaded from `cubin`, from its variables as they are now. Once is enough.

        Raises ContractError for a variable that cannot be found, and could hold anything.
        """
        if module in self._known:
            return
        self._known.add(module)
        for area in areas(cubin.read_bytes() if isinstance(cubin, Path) else cubin):
            for kept in _stretches(area, lookup):
                kept.before = self._read(kept.address, kept.size)
                self._kept.append(kept)

    def remember(self) -> None:
        """Take the variables as they are."""
        for kept in self._kept:
            kept.before = self._read(kept.address, kept.size)

    def changed(self) -> str | None:
        """Name a variable that is not as it was remembered, or None."""
        for kept in self._kept:
            now = self._read(kept.address, kept.size)
            if now != kept.before:
                pairs = enumerate(zip(now, kept.before, strict=True))
                return kept.name_at(next(at for at, (new, old) in pairs if new != old))
        return None


def _stretches(area: Area, lookup: Lookup) -> list[_Kept]:
    """Return the memory of a section: all of it, where its variables lie as in the file.

    Else each variable alone, as those are that the driver puts elsewhere (`__managed__`).
    """
    found = [(one, address) for one in area.variables if (address := lookup(one.name)) is not None]
    bases = {address - one.offset for one, address in found}
    if len(bases) == 1:
        return [_Kept(bases.pop(), area.size, 0, area.variables)]
    if len(found) < len(area.variables):
        known = {one for one, _ in found}
        lost = next(one.name for one in area.variables if one not in known)[:LONGEST_NAME]
        raise ContractError("state", f"device variable {lost!r} cannot be read back; {REMEDY}", found=lost)
    return [_Kept(address, one.size, one.offset, (one,)) for one, address in found if one.size]


class GpuState:
    """The state of a candidate's process on a GPU. `compiler`: of its language, one of those that build for a GPU."""

    def __init__(self, compiler: Compiler) -> None:
        self._driver = importlib.import_module("cuda.bindings.driver")
        self._state = DeviceState(self._copy)
        self._compiler = compiler
        if compiler == "triton":
            self._watch_triton()
        if compiler == "cute":
            self._watch_cute()
        if compiler == "tilelang":
            self._watch_tilelang()

    def make_ready(self) -> None:
        """Load what `begin` runs on the device."""
        spoil_scratch(self._driver)
        spoil_shared(self._driver)

    def begin(self) -> None:
        """Spoil scratch and shared memory and remember the variables; the device is idle."""
        if self._compiler == "nvrtc":
            self._watch_cuda()
        spoil_scratch(self._driver)
        spoil_shared(self._driver)
        self._state.remember()

    def end(self) -> None:
        """Raise ContractError where a variable is not as `begin` found it; the device is idle."""
        name = self._state.changed()
        if name is not None:
            said = f"left another value in the device variable {name[:LONGEST_NAME]!r} than it found there; {REMEDY}"
            raise ContractError("state", said, found=name[:LONGEST_NAME], expected="as it was before the call")

    @contextmanager
    def unchanged(self) -> Iterator[None]:
        """Check the block, a call after which the device is idle."""
        self.begin()
        yield
        self.end()

    def _watch_cuda(self) -> None:
        """Load and watch the modules of every source that the candidate compiled, before any launch of theirs."""
        from warpsmith.kernels_db.runtime import cuda  # noqa: PLC0415 - of a CUDA candidate alone

        for program in list(cuda.programs):
            library, cubin = program.module(torch.cuda.current_device())
            self._state.watch(int(library), cubin, functools.partial(self._in_library, library))

    def _watch_cute(self) -> None:
        """Watch each module that a CuTe DSL function loads from now on, before its first launch."""
        from warpsmith.kernels_db.runtime import cutedsl  # noqa: PLC0415 - of a CuTe DSL candidate alone

        load = cutedsl.Library.__init__

        def loaded(library: Any, cubin: Path) -> None:
            load(library, cubin)
            handle = library.handle()
            self._state.watch(int(handle), cubin, functools.partial(self._in_library, handle))

        cutedsl.Library.__init__ = loaded  # type: ignore[method-assign, assignment]

    def _watch_tilelang(self) -> None:
        """Refuse each module of a TileLang function's that has variables, before its first launch.

        The constants of TileLang's headers are none: they have names that the driver does not find, and no kernel's
        source that TileLang writes names them.
        """
        from warpsmith.kernels_db.runtime import cutedsl  # noqa: PLC0415 - of a TileLang candidate alone

        load = cutedsl.Library.__init__

        def loaded(library: Any, cubin: Path) -> None:
            if own := own_variables(cubin.read_bytes()):
                raise ContractError("state", f"device variable {own[0][:LONGEST_NAME]!r}; {REMEDY}", found=own[0])
            load(library, cubin)

        cutedsl.Library.__init__ = loaded  # type: ignore[method-assign, assignment]

    def _watch_triton(self) -> None:
        """Watch each module that Triton loads from now on, before its first launch."""
        from triton.compiler import CompiledKernel  # noqa: PLC0415 - of a Triton candidate alone

        load = CompiledKernel._init_handles

        def loaded(kernel: Any) -> None:
            fresh = kernel.module is None
            load(kernel)
            if fresh and kernel.module is not None:
                module = int(kernel.module)
                self._state.watch(module, kernel.kernel, functools.partial(self._in_module, module))

        CompiledKernel._init_handles = loaded

    def _in_library(self, library: Any, name: str) -> int | None:
        for find in (self._driver.cuLibraryGetGlobal, self._driver.cuLibraryGetManaged):
            status, address, _ = find(library, name.encode())
            if int(status) == 0:
                return int(address)
        return None

    def _in_module(self, module: int, name: str) -> int | None:
        status, address, _ = self._driver.cuModuleGetGlobal(self._driver.CUmodule(module), name.encode())
        return int(address) if int(status) == 0 else None

    def _copy(self, address: int, size: int) -> bytes:
        to = ctypes.create_string_buffer(size)
        (status,) = self._driver.cuMemcpyDtoH(ctypes.addressof(to), address, size)
        if int(status) != 0:
            raise RuntimeError(f"cuMemcpyDtoH of a device variable: {status.name}")
        return to.raw


def spoil_scratch(driver: Any) -> None:
    """Overwrite every block that torch's allocator keeps and nobody has, with a byte that no call can foresee.

    Blocks of graphs' own pools are left alone. Raises RuntimeError where the driver refuses.
    """
    byte = 1 + os.urandom(1)[0] % 255  # not zero, which a kernel that never clears its scratch hopes for
    for segment in torch.cuda.memory_snapshot():  # type: ignore[no-untyped-call]
        if tuple(segment["segment_pool_id"]) != (0, 0):
            continue
        for address, size in idle_blocks(segment):
            (status,) = driver.cuMemsetD8Async(address, byte, size, 0)
            if int(status) != 0:
                raise RuntimeError(f"cuMemsetD8Async of idle scratch: {status.name}")
    torch.cuda.synchronize()


def idle_blocks(segment: dict[str, Any]) -> list[tuple[int, int]]:
    """Return address and size of the blocks of a segment that nobody has and no stream still uses."""
    found, address = [], int(segment["address"])
    for block in segment["blocks"]:
        if block["state"] == "inactive":
            found.append((int(block.get("address", address)), int(block["size"])))
        address += int(block["size"])
    return found
