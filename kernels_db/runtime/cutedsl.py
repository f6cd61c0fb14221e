"""Kernels in NVIDIA's CuTe DSL: compiled for the layouts that a call has, and launched on torch's current stream.

    launch = cutedsl.compile(add_relu)  # a @cute.jit function, which launches @cute.kernel functions
    launch(x, y, out)

Source: the Python package `nvidia-cutlass-dsl`. Tensors are passed as they are; their shapes, strides and dtypes, and
the numbers, are constants of what is compiled, once for each combination. The DSL's own host code is not run:
`cutedsl_host` reads from it what it launches, and the launches are made here.
"""

from __future__ import annotations

import atexit
import ctypes
import importlib
import shutil
import sys
import tempfile
import threading
from collections.abc import Callable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from . import recording as _recording
from .cuda_build import core
from .cuda_device import opt_in, refusal
from .cutedsl_build import Argument, Compiled, TensorFacts, build
from .cutedsl_host import HostLaunch
from .errors import CacheError
from .launch_parameters import mismatch
from .limits import Launch, is_portable
from .map_encoding import with_address
from .recording import CLUSTER, COOPERATIVE, PROGRAMMATIC, Map, Number, Pointer

__all__ = ["Function", "build", "compile", "requested"]

ALIGNMENT = 16
"""Bytes: a kernel is compiled for addresses that are multiples of this, or of the power of two that they are."""
_READY = 1024  # combinations of arguments that are kept ready
_MAP_BYTES = 128


class Function:
    """One `@cute.jit` function. A call launches what it launches.

    A call returns as soon as its launches are queued. It raises TypeError for an argument that is no tensor of the GPU
    and no number, CompileError where the first call with such arguments cannot be compiled, and LaunchError where the
    device refuses a launch.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        self.name = str(getattr(function, "__name__", "function"))
        self.function = function
        self._ready: dict[Any, tuple[ReadyLaunch, ...]] = {}

    def __call__(self, *arguments: Any) -> None:
        current_device, current_stream = _functions()
        device = current_device()
        addresses: list[int] = []
        key = (device, *(self._described(one, addresses) for one in arguments))
        ready = self._ready.get(key)
        if ready is None:
            ready = self._prepared(key)
        recorder = _recording.current() if _recording.active else None
        stream = current_stream(device)
        for each in ready:
            if recorder is not None:
                each.note(recorder, addresses)
            each.launch(stream, addresses)

    def facts(self, arguments: Sequence[Any]) -> tuple[Argument, ...]:
        """Return what the function is compiled for of these arguments. Raises TypeError."""
        return tuple(_facts(self._described(one, [])) for one in arguments)

    def _compiled(self, facts: tuple[Argument, ...], arch: str, cache_dir: Path | None) -> Compiled:
        """Compile the function for these arguments, or find it in the cache. Another compiler's has its own."""
        return build(self.function, facts, arch, cache_dir=cache_dir)

    def _described(self, argument: Any, addresses: list[int]) -> Any:
        """An argument as a key; its address, 0 for a number, goes to `addresses`."""
        if isinstance(argument, (bool, int, float)) or argument is None:
            addresses.append(0)
            # -0.0 == 0.0 and nan != nan, and each is a constant of its own
            return type(argument), argument.hex() if isinstance(argument, float) else argument
        try:
            address, on_gpu = argument.data_ptr(), argument.is_cuda
        except AttributeError:
            raise TypeError(f"{self.name}: found {type(argument).__name__}, expected a tensor or a number") from None
        if not on_gpu:
            raise TypeError(f"{self.name}: found a tensor on {argument.device}, expected one on cuda")
        addresses.append(address)
        alignment = min(address & -address, ALIGNMENT) or ALIGNMENT
        return argument.dtype, tuple(argument.shape), tuple(argument.stride()), alignment

    def _prepared(self, key: tuple[Any, ...]) -> tuple[ReadyLaunch, ...]:
        device = key[0]
        gpu = core().Device(device)
        gpu.set_current()
        facts = tuple(_facts(one) for one in key[1:])
        try:
            compiled = self._compiled(facts, f"sm_{gpu.arch}", None)
        except CacheError:  # a runner reads what was compiled ahead, and may write beside it nowhere
            compiled = self._compiled(facts, f"sm_{gpu.arch}", _own_directory())
        library = Library(compiled.build.path)
        ready = tuple(ReadyLaunch(self.name, one, library, device) for one in compiled.launches)
        if len(self._ready) >= _READY:
            self._ready.clear()
        self._ready[key] = ready
        return ready


class Library:
    """A cubin, loaded once. From any thread."""

    def __init__(self, cubin: Path) -> None:
        self.cubin = cubin
        self._code = core().ObjectCode.from_cubin(str(cubin))
        self._loading = threading.Lock()

    def kernel(self, name: str) -> Any:
        """Return a loaded kernel of cuda-core's."""
        with self._loading:
            return self._code.get_kernel(name)

    def handle(self) -> Any:
        """Return the driver's handle of the module."""
        return self._code.handle


class ReadyLaunch:
    """One launch of a compiled function on one device: all but the addresses and the stream."""

    def __init__(self, function: str, launch: HostLaunch, library: Library, device: int) -> None:
        self.kernel = launch.kernel
        self._name = function
        self._device = device
        self._launch = launch
        self._library = library
        self._asked = requested(launch)
        self._empty = 0 in launch.grid
        if self._empty:
            return
        self._kernel = library.kernel(launch.kernel)
        self._handle = int(self._kernel.handle)
        where = (function, self._asked)
        if launch.shared:
            opt_in(self._kernel, device, "MAX_DYNAMIC_SHARED_SIZE_BYTES", launch.shared, where)
        if not is_portable(self._asked.cluster):
            opt_in(self._kernel, device, "NON_PORTABLE_CLUSTER_SIZE_ALLOWED", 1, where)
        if (found := mismatch(self._recorded([Pointer(0) for _ in launch.parameters]))) is not None:
            raise RuntimeError(found)
        self._templates = [parameter.template for parameter in launch.parameters]
        self._words = [
            (number, *word) for number, parameter in enumerate(launch.parameters) for word in parameter.words
        ]
        self._pointers = ctypes.c_void_p * max(len(self._templates), 1)
        self._configurations: dict[int, Any] = {}

    def launch(self, stream: int, addresses: Sequence[int]) -> None:
        """Launch on a stream, given by its handle."""
        if self._empty:
            return
        configuration = self._configurations.get(stream)
        if configuration is None:
            if len(self._configurations) >= 64:
                self._configurations.clear()
            configuration = self._configurations[stream] = _configuration(self._launch, stream)
        held = self._filled(addresses)
        pointers = self._pointers(*map(ctypes.addressof, held))
        driver = _driver()
        (status,) = driver.cuLaunchKernelEx(configuration, self._handle, ctypes.addressof(pointers), 0)
        if int(status) != 0:
            raise refusal(self._name, self._asked, self._kernel, self._device, status.name)

    def note(self, recorder: _recording.Recorder, addresses: Sequence[int]) -> None:
        """Tell a recorder of the launch."""
        if self._empty:
            return
        arguments: list[Number | Pointer | Map] = []
        for parameter, held in zip(self._launch.parameters, self._filled(addresses), strict=True):
            raw = bytes(held)
            value = int.from_bytes(raw[:8], "little")
            if not parameter.words and len(raw) <= 8:
                arguments.append(Number(value))
            elif len(raw) == 8:
                arguments.append(Pointer(value))
            elif len(raw) == _MAP_BYTES and [word[0] for word in parameter.words] == [0]:
                if with_address(raw, value) != raw:
                    recorder.refuse(f"{self._name}: a TMA atom is not made as this version of the recorder knows it")
                    return
                arguments.append(Map(value, raw))
            else:
                recorder.refuse(f"{self._name} takes a parameter of {len(raw)} bytes, which plans do not hold")
                return
        recorder.events.append(self._recorded(arguments))

    def _recorded(self, arguments: Sequence[Number | Pointer | Map]) -> _recording.Launch:
        one = self._launch
        sizes = tuple(len(parameter.template) for parameter in one.parameters)
        return _recording.Launch(
            "cuda", self._name, self._handle, tuple(arguments), one.grid, one.block, one.shared, one.attributes, sizes
        )

    def _filled(self, addresses: Sequence[int]) -> list[Any]:
        """The parameters' bytes with the addresses in their places."""
        held = [ctypes.create_string_buffer(template, len(template)) for template in self._templates]
        for number, at, argument, behind in self._words:
            ctypes.c_uint64.from_buffer(held[number], at).value = addresses[argument] + behind
        return held


def compile(function: Callable[..., Any]) -> Function:  # noqa: A001  candidates say cutedsl.compile
    """Make a `@cute.jit` function callable with tensors; compiled when it is first called with such ones.

    Raises:
        TypeError: it is no function.
    """
    if not callable(function):
        raise TypeError(f"cutedsl.compile: found {type(function).__name__}, expected a @cute.jit function")
    return Function(function)


def requested(launch: HostLaunch) -> Launch:
    """Return a launch of a host function's as it is compared with what a device has."""
    attributes = {kind: values for kind, *values in launch.attributes}
    cluster = attributes.get(CLUSTER)
    group = None if cluster is None else (cluster[0], cluster[1], cluster[2])
    return Launch(launch.grid, launch.block, group, launch.shared, COOPERATIVE in attributes)


def _facts(described: Any) -> Argument:
    if len(described) == 2:
        kind, value = described
        number: Argument = float.fromhex(value) if issubclass(kind, float) else value
        return number
    dtype, shape, strides, alignment = described
    return TensorFacts(str(dtype).removeprefix("torch."), shape, strides, alignment)


def _configuration(launch: HostLaunch, stream: int) -> Any:
    """The driver's configuration of a launch."""
    driver = _driver()
    made = driver.CUlaunchConfig()
    made.gridDimX, made.gridDimY, made.gridDimZ = launch.grid
    made.blockDimX, made.blockDimY, made.blockDimZ = launch.block
    made.sharedMemBytes = launch.shared
    made.hStream = driver.CUstream(stream)
    attributes = []
    for kind, x, y, z in launch.attributes:
        one = driver.CUlaunchAttribute()
        one.id = driver.CUlaunchAttributeID(kind)
        if kind == CLUSTER:
            one.value.clusterDim.x, one.value.clusterDim.y, one.value.clusterDim.z = x, y, z
        elif kind == COOPERATIVE:
            one.value.cooperative = x
        elif kind == PROGRAMMATIC:
            one.value.programmaticStreamSerializationAllowed = x
        attributes.append(one)
    made.attrs = attributes
    made.numAttrs = len(attributes)
    return made


@lru_cache
def _own_directory() -> Path:
    """A directory of this process alone, which goes with it."""
    directory = tempfile.mkdtemp(prefix="warpsmith-kernels-")
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    return Path(directory)


@lru_cache
def _driver() -> Any:
    return importlib.import_module("cuda.bindings.driver")


@lru_cache
def _functions() -> tuple[Any, Any]:
    """torch's current device, and the handle of its stream: see `cuda._functions`."""
    torch = sys.modules.get("torch") or importlib.import_module("torch")
    return torch.cuda.current_device, torch._C._cuda_getCurrentRawStream
