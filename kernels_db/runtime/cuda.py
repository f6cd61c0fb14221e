"""CUDA kernels: compiled by NVRTC for a named architecture, with or without a GPU, and launched on torch's current
stream.

    kernels = cuda.compile(r'''
    extern "C" __global__ void add_relu(const float* x, const float* y, float* out, long long n) { ... }
    ''')
    kernels.add_relu[(n + 255) // 256, 256](x, y, out, n)
    kernels.add_relu.launch(grid, block, x, y, out, n, shared_bytes=65536, cluster=2, cooperative=True)

Source: NVIDIA's cuda-core (`Program`, `ObjectCode`, `launch`), imported when first needed. The source is C++20; only
`extern "C" __global__ void` functions can be launched. CUDA's own headers are there; of the host's, <cstdint> is
included already, CUtensorMap is declared, and <cfloat>, <climits>, <cmath> and their like may be included. Compiling is
put off until the first launch, when the device is known.
"""

from __future__ import annotations

import importlib
import importlib.util
import io
import re
import sys
import time
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path
from typing import Any

from . import signatures as _signatures
from .cache import Build, cache_directory, content_key, find, publish, workspace
from .calls import C_TYPES, Argument, converter
from .errors import CompileError, trim_log
from .flags import checked
from .nvrtc_headers import HEADERS
from .signatures import Parameter

ABI = 1
"""Counts up whenever what this module builds from the same source changes."""

_STATIC_SHARED_BYTES = 48 * 1024  # more must be asked for per kernel
_LOG_BYTES = 64 * 1024

Extent = int | tuple[int, ...]
"""A grid, block or cluster: one to three sizes."""


class Kernel:
    """One `__global__` function. `kernel[grid, block](...)` launches it; `launch` takes the other options by name.

    A launch returns as soon as it is queued. It raises TypeError, OverflowError or ValueError for an argument or extent
    that does not fit, and CompileError when the first launch on a device cannot build the kernel.
    """

    def __init__(self, name: str, parameters: list[Parameter], program: Program) -> None:
        self.name = name
        self.parameters = tuple(parameters)
        self._program = program
        self._converters = [_typed(name, parameter) for parameter in parameters]
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
            shared_bytes: dynamic shared memory of one block; the kernel is opted in to more than 48 KiB.
            cluster: blocks of one cluster, per axis (compute capability 9.0 and above).
            cooperative: all blocks are resident at once, so that they may synchronise with each other.
        """
        if len(arguments) != len(self._converters):
            names = ", ".join(parameter.name for parameter in self.parameters)
            raise TypeError(f"{self.name} takes {len(self.parameters)} arguments ({names}), found {len(arguments)}")
        values = [convert(argument) for convert, argument in zip(self._converters, arguments, strict=True)]
        core = _core()
        device, stream = _current()
        kernel = self._program.kernel(self.name, device)
        if shared_bytes > max(_STATIC_SHARED_BYTES, self._shared_bytes.get(device, 0)):
            _opt_in(kernel, device, shared_bytes)
            self._shared_bytes[device] = shared_bytes
        config = _config(self.name, grid, block, cluster, shared_bytes=shared_bytes, cooperative=cooperative)
        core.launch(stream, config, kernel, *values)


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
    """One source with its flags, loaded once per device."""

    def __init__(self, source: str, flags: tuple[str, ...]) -> None:
        self.source = source
        self.flags = flags
        self._loaded: dict[tuple[int, str], Any] = {}

    def kernel(self, name: str, device: int) -> Any:
        """The loaded kernel of cuda-core."""
        found = self._loaded.get((device, name))
        if found is None:
            core = _core()
            gpu = core.Device(device)
            gpu.set_current()
            built = build(self.source, f"sm_{gpu.arch}", self.flags)
            found = core.ObjectCode.from_cubin(str(built.path)).get_kernel(name)
            self._loaded[device, name] = found
        return found


def compile(source: str, flags: Iterable[str] = ()) -> Kernels:  # noqa: A001  candidates say cuda.compile
    """The kernels of `source`, built for the device at hand when they are first launched.

    Args:
        source: CUDA C++20 with `extern "C" __global__ void` functions.
        flags: from `flags.CUDA_FLAGS`.

    Raises:
        CompileError: it declares a parameter that no argument fits, no kernel at all, or a flag is not allowed.
    """
    program = Program(source, checked(flags, "cuda"))
    return Kernels({name: Kernel(name, declared, program) for name, declared in signatures(source).items()})


def signatures(source: str) -> dict[str, list[Parameter]]:
    """The parameters of each `extern "C" __global__` function that `source` defines.

    Raises:
        CompileError: there is none, or a parameter has a type that no argument fits; the message names it.
    """
    return _signatures.signatures(source, cuda=True)


def build(
    source: str, arch: str = "sm_90a", flags: Iterable[str] = (), *, cache_dir: Path | str | None = None
) -> Build:
    """Compile `source` to a cubin in the cache, or find it there. It needs no GPU and runs nothing of the source.

    NVRTC works inside this process and cannot be interrupted: to bound it, call this in a process of its own. The log
    holds what ptxas says of registers, spills and shared memory.

    Args:
        arch: "sm_90" or "sm_90a"; from 9.0 up the architecture's own instructions ("a") are always on.

    Raises:
        CompileError: NVRTC refused it (with its log), or is not installed.
    """
    chosen = checked(flags, "cuda")
    target = _architecture(arch)
    directory = cache_directory(cache_dir)
    parts = {"abi": ABI, "source": source, "flags": list(chosen), "arch": target, **dict(toolchain())}
    key = content_key(parts)
    found = find(directory, key, ".cubin")
    if found is not None:
        return found
    start = time.perf_counter()
    with workspace(directory) as place:
        for name, text in HEADERS.items():
            (place / name).write_text(text)
        code, log = _nvrtc(source, target, chosen, place)
        (place / "kernel.cubin").write_bytes(code)
        seconds = time.perf_counter() - start
        return publish(directory, key, ".cubin", place / "kernel.cubin", log=log[:_LOG_BYTES], seconds=seconds)


def tensor_map(
    tensor: Argument, box: tuple[int, ...], *, swizzle: int = 0, element_strides: tuple[int, ...] | None = None
) -> Any:
    """A tensor map (TMA descriptor) of `tensor`, for a parameter `const __grid_constant__ CUtensorMap`.

    Args:
        tensor: on the GPU, 16-byte aligned, 1 to 5 axes.
        box: elements of one tile, per axis, in the tensor's own order of axes; each from 1 to 256.
        swizzle: bytes of the shared-memory swizzle: 0, 32, 64 or 128.
        element_strides: step between elements, per axis; None steps by one.
    """
    core = _core()
    kinds = {0: "NONE", 32: "SWIZZLE_32B", 64: "SWIZZLE_64B", 128: "SWIZZLE_128B"}
    if swizzle not in kinds:
        raise ValueError(f"swizzle: found {swizzle!r}, expected 0, 32, 64 or 128")
    view = core.utils.StridedMemoryView.from_any_interface(tensor, stream_ptr=-1)
    mode = getattr(core._tensor_map.TensorMapSwizzle, kinds[swizzle])
    return view.as_tensor_map(box_dim=tuple(box), element_strides=element_strides, swizzle=mode)


@lru_cache
def toolchain() -> tuple[tuple[str, str], ...]:
    """What a build depends on besides its source: NVRTC's version and the directories of its headers."""
    try:
        nvrtc = importlib.import_module("cuda.bindings.nvrtc")
        status, major, minor = nvrtc.nvrtcVersion()
    except (ImportError, RuntimeError) as error:
        raise CompileError(f"NVRTC is not installed: {error}") from error
    if int(status) != 0:
        raise CompileError(f"NVRTC cannot be used: status {status}")
    return (("nvrtc", f"{major}.{minor}"), ("include", ":".join(_include_paths())))


@lru_cache
def _include_paths() -> tuple[str, ...]:
    """The directories of CUDA's own headers: the toolkit's, or those that come with Triton."""
    finder = importlib.import_module("cuda.pathfinder")
    found = [finder.find_nvidia_header_directory(name) for name in ("cudart", "cccl")]
    paths = [str(path) for path in found if path]
    specification = None if found[0] else importlib.util.find_spec("triton")
    places = specification.submodule_search_locations if specification is not None else None
    paths += [str(Path(place) / "backends" / "nvidia" / "include") for place in places or []]
    return tuple(path for path in dict.fromkeys(paths) if Path(path).is_dir())


def _nvrtc(source: str, arch: str, flags: tuple[str, ...], headers: Path) -> tuple[bytes, str]:
    """(cubin, log) of `source`; `headers` holds those that NVRTC lacks."""
    core = _core()
    log = io.StringIO()
    options = core.ProgramOptions(
        name="candidate.cu",
        arch=arch,
        std="c++20",
        ptxas_options=["-v"],
        include_path=[str(headers), *_include_paths()],
        pre_include=["stdint.h", "cuda.h"],
        **_options(flags),
    )
    try:
        program = core.Program(source, "c++", options)
        code = program.compile("cubin", logs=log).code
    except _errors() as error:
        text = f"{log.getvalue()}\n{error}".replace("NVRTC_ERROR_COMPILATION, compilation log:", "").strip()
        raise CompileError(_first_error(text), trim_log(text)) from error
    return bytes(code), log.getvalue().replace("\0", "").strip() + "\n"


def _errors() -> tuple[type[Exception], ...]:
    """What cuda-core raises when a source does not compile; its base class has no public place."""
    utilities = importlib.import_module("cuda.core._utils.cuda_utils")
    return (utilities.CUDAError, utilities.NVRTCError, RuntimeError)


def _options(flags: tuple[str, ...]) -> dict[str, Any]:
    """The fields of ProgramOptions that `flags` set."""
    fields: dict[str, Any] = {}
    macros: list[str | tuple[str, str]] = []
    names = {"fmad": "fma", "prec-div": "prec_div", "prec-sqrt": "prec_sqrt", "ftz": "ftz"}
    for flag in flags:
        name, _, value = flag.removeprefix("--").partition("=")
        if flag.startswith("-D"):
            macro, _, text = flag[2:].partition("=")
            macros.append((macro, text) if text else macro)
        elif name == "maxrregcount":
            fields["max_register_count"] = int(value)
        elif name in names:
            fields[names[name]] = value == "true"
        else:
            fields[name.replace("-", "_")] = True
    if macros:
        fields["define_macro"] = macros
    return fields


def _first_error(log: str) -> str:
    """The first error of a log in one line."""
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    return next((line for line in lines if re.search(r"\berror\b", line)), lines[0] if lines else "NVRTC refused it")[
        :500
    ]


def _architecture(arch: str) -> str:
    """`sm_90` as `sm_90a`.

    Raises:
        CompileError: it is no architecture's name.
    """
    match = re.fullmatch(r"sm_(\d{2,3})([af]?)", arch)
    if match is None:
        raise CompileError(f"arch: found {arch!r}, expected one such as 'sm_90'")
    return f"sm_{match[1]}a" if int(match[1]) >= 90 and not match[2] else arch


@lru_cache
def _core() -> Any:
    """The module cuda.core."""
    try:
        return importlib.import_module("cuda.core")
    except ImportError as error:
        raise CompileError(f"cuda-core is not installed: {error}") from error


def _typed(function: str, parameter: Parameter) -> Any:
    """A converter to what cuda-core's launch takes: an address as int, a number as a ctypes value, a tensor map as it
    is.
    """
    if parameter.kind == "tensor_map":
        return lambda value: value
    convert = converter(function, parameter, "cuda")
    if parameter.kind == "pointer":
        return convert
    kind = C_TYPES[parameter.scalar]
    return lambda value: kind(convert(value))


def _current() -> tuple[int, Any]:
    """(device index, stream) that torch works on now."""
    current_device, current_stream = _torch_state()
    device = current_device()
    return device, _stream(current_stream(device))


@lru_cache
def _torch_state() -> tuple[Any, Any]:
    """torch's functions for the current device and its stream's handle.

    The second is not public, but Triton launches by it too; torch.cuda.current_stream takes 4 us where it takes 0.2.
    """
    torch = sys.modules.get("torch") or importlib.import_module("torch")
    return torch.cuda.current_device, torch._C._cuda_getCurrentRawStream


@lru_cache(maxsize=64)
def _stream(handle: int) -> Any:
    return _core().Stream.from_handle(handle)


@lru_cache(maxsize=1024)
def _config(
    name: str, grid: Extent, block: Extent, cluster: Extent | None, *, shared_bytes: int, cooperative: bool
) -> Any:
    """cuda-core's launch configuration, which counts a grid in clusters where there are any."""
    blocks, threads = _extent(name, "grid", grid), _extent(name, "block", block)
    if cluster is None:
        return _core().LaunchConfig(grid=blocks, block=threads, shmem_size=shared_bytes, is_cooperative=cooperative)
    group = _extent(name, "cluster", cluster)
    if any(size % part for size, part in zip(blocks, group, strict=True)):
        raise ValueError(f"{name}: found grid {blocks}, expected a multiple of cluster {group}")
    counts = tuple(size // part for size, part in zip(blocks, group, strict=True))
    return _core().LaunchConfig(
        grid=counts, cluster=group, block=threads, shmem_size=shared_bytes, is_cooperative=cooperative
    )


def _extent(name: str, what: str, extent: Extent) -> tuple[int, int, int]:
    sizes = extent if isinstance(extent, tuple) else (extent,)
    if not 1 <= len(sizes) <= 3 or not all(isinstance(size, int) and size > 0 for size in sizes):
        raise ValueError(f"{name}: found {what} {extent!r}, expected one to three positive ints")
    x, y, z = (*sizes, 1, 1)[:3]
    return x, y, z


def _opt_in(kernel: Any, device: int, shared_bytes: int) -> None:
    """Allow the kernel more dynamic shared memory than the default."""
    driver = importlib.import_module("cuda.bindings.driver")
    attribute = driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
    (status,) = driver.cuKernelSetAttribute(attribute, shared_bytes, kernel.handle, device)
    if int(status) != 0:
        raise ValueError(
            f"shared_bytes: found {shared_bytes}, which this device does not give one block ({status.name})"
        )
