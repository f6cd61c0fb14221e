"""CUDA kernels: compiled by NVRTC for a named architecture, with or without a GPU, and launched on torch's current
stream.

    kernels = cuda.compile(r'''
    extern "C" __global__ void add_relu(const float* x, const float* y, float* out, long long n) { ... }
    ''')
    kernels.add_relu[(n + 255) // 256, 256](x, y, out, n)
    kernels.add_relu.launch(grid, block, x, y, out, n, shared_bytes=65536, cluster=2, cooperative=True)

Source: NVIDIA's cuda-core (`Program`, `ObjectCode`, `launch`), imported when first needed. The source is C++20; only
`extern "C" __global__ void` functions can be launched. CUDA's own headers are there; of the host's, <cstdint> is
included already, CUtensorMap is declared, and `nvrtc_headers` says what else may be included. Compiling is put off
until the first launch, when the device is known.
"""

from __future__ import annotations

import importlib
import math
import sys
import threading
import weakref
from collections.abc import Callable, Iterable
from functools import lru_cache
from pathlib import Path
from typing import Any

from . import recording as _recording
from . import signatures as _signatures
from .calls import C_TYPES, Argument, converter, integer_range
from .cuda_build import build, core, errors, toolchain
from .cuda_device import opt_in, refusal
from .flags import checked
from .limits import Extents, Launch, is_portable
from .signatures import Parameter
from .tensor_maps import tensor_map

__all__ = ["Kernel", "Kernels", "build", "compile", "requested", "signatures", "tensor_map", "toolchain"]

_READY = 1024  # launches of one kernel that are kept ready

Extent = int | tuple[int, ...]
"""A grid, block or cluster: one to three sizes."""


class Kernel:
    """One `__global__` function. `kernel[grid, block](...)` launches it; `launch` takes the other options by name.

    A launch returns as soon as it is queued. It raises TypeError, OverflowError or ValueError for an argument or extent
    that does not fit, LaunchError where the device refuses it, and CompileError when the first launch on a device
    cannot build the kernel.
    """

    def __init__(self, name: str, parameters: list[Parameter], program: Program) -> None:
        self.name = name
        self.parameters = tuple(parameters)
        self._program = program
        self._converters = [_typed(name, parameter) for parameter in parameters]
        self._ready: dict[Any, tuple[Any, Any]] = {}  # by device and launch: cuda-core's configuration and kernel
        self._shared_bytes: dict[int, int] = {}  # asked for so far, by device

    def __getitem__(self, extents: tuple[Extent, Extent]) -> Configured:
        if not isinstance(extents, tuple) or len(extents) != 2:
            raise TypeError(f"{self.name}: found [{extents!r}], expected [grid, block]")
        return Configured(self, extents[0], extents[1])

    def launch(
        self,
        grid: Extent,
        block: Extent,
        *arguments: Argument,
        shared_bytes: int = 0,
        cluster: Extent | None = None,
        cooperative: bool = False,
    ) -> None:
        """Launch on the current stream.

        Args:
            grid: blocks, per axis; with `cluster`, a multiple of it.
            block: threads of one block, per axis.
            shared_bytes: dynamic shared memory of one block; the kernel is opted in where it is more than the default.
            cluster: blocks of one cluster, per axis (compute capability 9.0 and above); some devices run more than 8.
            cooperative: all blocks are resident at once, so that they may synchronise with each other.
        """
        values = self.values(arguments)
        current_device, current_stream, launch, refused = _functions()
        device = current_device()
        key = (device, grid, block, shared_bytes, cluster, cooperative)
        ready = self._ready.get(key)
        if ready is None:
            asked = requested(self.name, grid, block, shared_bytes, cluster, cooperative)
            ready = self._prepare(key, asked)
        if _recording.active:
            asked = requested(self.name, grid, block, shared_bytes, cluster, cooperative)
            _recording.note_cuda(self.name, ready[1], asked, values)
        handle = current_stream(device)
        stream = _streams.get(handle)
        if stream is None:
            stream = _stream(handle)
        try:
            launch(stream, ready[0], ready[1], *values)
        except refused as error:
            asked = requested(self.name, grid, block, shared_bytes, cluster, cooperative)
            raise refusal(self.name, asked, ready[1], device, error) from error

    def values(self, arguments: tuple[Argument, ...]) -> list[Any]:
        """`arguments` as cuda-core's launch takes them. Raises TypeError or OverflowError; each names the parameter."""
        if len(arguments) != len(self._converters):
            names = ", ".join(parameter.name for parameter in self.parameters)
            raise TypeError(f"{self.name} takes {len(self.parameters)} arguments ({names}), found {len(arguments)}")
        return [convert(argument) for convert, argument in zip(self._converters, arguments, strict=True)]

    def _prepare(self, key: tuple[Any, ...], asked: Launch) -> tuple[Any, Any]:
        device = key[0]
        kernel = self._program.kernel(self.name, device)
        if asked.shared_bytes > self._shared_bytes.get(device, 0):
            opt_in(kernel, device, "MAX_DYNAMIC_SHARED_SIZE_BYTES", asked.shared_bytes, (self.name, asked))
            self._shared_bytes[device] = asked.shared_bytes
        if not is_portable(asked.cluster):
            opt_in(kernel, device, "NON_PORTABLE_CLUSTER_SIZE_ALLOWED", 1, (self.name, asked))
        if len(self._ready) >= _READY:
            self._ready.clear()
        refused: tuple[type[Exception], ...] = (*errors(), ValueError)
        try:
            config = _config(asked)
        except refused as error:
            raise refusal(self.name, asked, kernel, device, error) from error
        ready = self._ready[key] = (config, kernel)
        return ready


class Configured:
    """A kernel with its grid and block."""

    def __init__(self, kernel: Kernel, grid: Extent, block: Extent) -> None:
        self._kernel = kernel
        self._grid = grid
        self._block = block

    def __call__(self, *arguments: Argument) -> None:
        self._kernel.launch(self._grid, self._block, *arguments)


class Kernels:
    """The kernels of one source, as attributes."""

    def __init__(self, kernels: dict[str, Kernel]) -> None:
        self.__dict__.update(kernels)

    def __getattr__(self, name: str) -> Kernel:
        raise AttributeError(f"no kernel named {name!r}: expected one of {', '.join(sorted(self.__dict__))}")


class Program:
    """One source with its flags, loaded once per device: its kernels share its `__device__` variables.

    From any thread. A module of cuda-core's belongs to no stream, so streams and graphs may share it, too.
    """

    def __init__(self, source: str, flags: tuple[str, ...]) -> None:
        self.source = source
        self.flags = flags
        self._loaded: dict[int, tuple[Any, Path]] = {}  # by device: cuda-core's module and its file
        self._kernels: dict[tuple[int, str], Any] = {}
        self._loading = threading.Lock()  # cuda-core loads a module with its first kernel: two threads, two modules

    def kernel(self, name: str, device: int) -> Any:
        """The loaded kernel of cuda-core."""
        with self._loading:
            found = self._kernels.get((device, name))
            if found is None:
                found = self._kernels[device, name] = self._module(device)[0].get_kernel(name)
            return found

    def module(self, device: int) -> tuple[Any, Path]:
        """The driver's handle of the module, loaded, and the cubin that it was loaded from."""
        self.kernel(next(iter(signatures(self.source))), device)
        module, cubin = self._loaded[device]
        return module.handle, cubin

    def _module(self, device: int) -> tuple[Any, Path]:
        found = self._loaded.get(device)
        if found is None:
            gpu = core().Device(device)
            gpu.set_current()
            cubin = build(self.source, f"sm_{gpu.arch}", self.flags).path
            found = self._loaded[device] = core().ObjectCode.from_cubin(str(cubin)), cubin
        return found


programs: weakref.WeakSet[Program] = weakref.WeakSet()
"""Every source that `compile` was given and whose kernels are still there."""


def compile(source: str, flags: Iterable[str] = ()) -> Kernels:  # noqa: A001  candidates say cuda.compile
    """The kernels of `source`, built for the device at hand when they are first launched.

    Args:
        source: CUDA C++20 with `extern "C" __global__ void` functions.
        flags: from `flags.CUDA_FLAGS`.

    Raises:
        CompileError: it declares a parameter that no argument fits, no kernel at all, or a flag is not allowed.
    """
    program = Program(source, checked(flags, "cuda"))
    kernels = Kernels({name: Kernel(name, declared, program) for name, declared in signatures(source).items()})
    programs.add(program)
    return kernels


def signatures(source: str) -> dict[str, list[Parameter]]:
    """The parameters of each `extern "C" __global__` function that `source` defines.

    Raises:
        CompileError: there is none, or a parameter has a type that no argument fits; the message names it.
    """
    return _signatures.signatures(source, cuda=True)


def _typed(function: str, parameter: Parameter) -> Callable[[Argument], Any]:
    """A converter to what cuda-core's launch takes: an address as int, a number as a ctypes value, a tensor map as it
    is. The usual case of a number is decided here: a call less for each.
    """
    if parameter.kind == "tensor_map":
        return _tensor_map_for(f"parameter {parameter.name!r} of {function!r}")
    convert = converter(function, parameter, "cuda")
    if parameter.kind == "pointer":
        return convert
    kind, usual = C_TYPES[parameter.scalar], float if parameter.kind == "floating" else int
    if parameter.kind == "boolean":
        return lambda value: kind(convert(value))
    low, high = integer_range(parameter) if usual is int else (-math.inf, math.inf)

    def number(value: Argument) -> Any:
        return kind(value if type(value) is usual and low <= value <= high else convert(value))

    return number


def _tensor_map_for(where: str) -> Callable[[Argument], Any]:
    def convert(value: Argument) -> Any:
        if type(value).__name__ != "TensorMapDescriptor":
            raise TypeError(
                f"{where}: found {type(value).__name__}, expected a tensor map: cuda.tensor_map(tensor, box)"
            )
        return value

    return convert


@lru_cache
def _functions() -> tuple[Any, Any, Any, tuple[type[Exception], ...]]:
    """What a launch calls: torch's current device and the handle of its stream, cuda-core's launch and what it raises.

    The second is not public, but Triton launches by it too; torch.cuda.current_stream takes 4 us where it takes 0.2.
    """
    torch = sys.modules.get("torch") or importlib.import_module("torch")
    # cuda-core counts the blocks of a cooperative launch itself, and raises ValueError.
    return torch.cuda.current_device, torch._C._cuda_getCurrentRawStream, core().launch, (*errors(), ValueError)


_streams: dict[int, Any] = {}
"""cuda-core's streams by their handles."""


def _stream(handle: int) -> Any:
    if len(_streams) >= 64:
        _streams.clear()
    stream = _streams[handle] = core().Stream.from_handle(handle)
    return stream


def requested(
    name: str,
    grid: Extent,
    block: Extent,
    shared_bytes: int = 0,
    cluster: Extent | None = None,
    cooperative: bool = False,
) -> Launch:
    """The launch with its extents written out. Raises ValueError where one is none."""
    group = None if cluster is None else _extent(name, "cluster", cluster)
    if not isinstance(shared_bytes, int) or shared_bytes < 0:
        raise ValueError(f"{name}: found shared_bytes {shared_bytes!r}, expected a number of bytes")
    asked = Launch(_extent(name, "grid", grid), _extent(name, "block", block), group, shared_bytes, bool(cooperative))
    if group is not None and any(size % part for size, part in zip(asked.grid, group, strict=True)):
        raise ValueError(f"{name}: found grid {asked.grid}, expected a multiple of cluster {group}")
    return asked


def _config(asked: Launch) -> Any:
    """cuda-core's launch configuration, which counts a grid in clusters where there are any."""
    options: dict[str, Any] = {"block": asked.block, "shmem_size": asked.shared_bytes}
    if asked.cluster is None:
        return core().LaunchConfig(grid=asked.grid, is_cooperative=asked.cooperative, **options)
    counts = tuple(size // part for size, part in zip(asked.grid, asked.cluster, strict=True))
    return core().LaunchConfig(grid=counts, cluster=asked.cluster, is_cooperative=asked.cooperative, **options)


def _extent(name: str, what: str, extent: Extent) -> Extents:
    sizes = extent if isinstance(extent, tuple) else (extent,)
    if not 1 <= len(sizes) <= 3 or not all(isinstance(size, int) and size > 0 for size in sizes):
        raise ValueError(f"{name}: found {what} {extent!r}, expected one to three positive ints")
    x, y, z = (*sizes, 1, 1)[:3]
    return x, y, z
