"""TileLang functions to cubins in the cache, with what they launch. Neither a GPU nor a toolkit is needed.

A `@T.prim_func` is compiled for the shapes and dtypes of its tensors and for its numbers. TileLang lowers it to CUDA's
source, which NVRTC compiles with TileLang's own headers; its host code is read and not run. The package `tilelang` is
imported when it is first needed.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import importlib.util
import inspect
import io
import json
import os
import re
import time
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from .cache import Build, cache_directory, content_key, workspace
from .cuda_build import core, errors, first_error, include_paths, toolchain
from .cutedsl_build import (
    Argument,
    TensorFacts,
    architecture,
    called,
    compiler_key,
    find_pair,
    publish_pair,
    refuse_carried,
)
from .errors import CompileError, HostError, trim_log
from .tilelang_host import KernelLaunch, TensorMap, launches

ABI = 1
"""Counts up whenever what this module builds from the same source changes."""
DISTRIBUTION = "tilelang"
ALIGNMENT = 16
"""Bytes: what TileLang asks of the address of every tensor."""
HEADERS = "cuda/std/cstdint"
"""Of libcu++: TileLang's headers need these, and NVRTC has none."""
VARIABLES = {"TILELANG_DISABLE_CACHE": "1"}
"""Of a process that compiles: builds are kept here, and not by TileLang as well."""
_FOREIGN = re.compile(r"^\s*#\s*include\s+(?!<(?:tl_templates/|cuda\.h>|math_constants\.h>)).*", re.MULTILINE)
_STATE = re.compile(r"\b(__device__|__constant__|__managed__|static)\b")
_COLOURS = re.compile(r"\x1b\[[0-9;]*m")
_FRAME = re.compile(r"^\s*(File \"|Traceback)")


@dataclass(frozen=True)
class Compiled:
    """A function compiled for some arguments: the cubin, and what it launches, in order."""

    build: Build
    launches: tuple[KernelLaunch, ...]


def build(function: Any, arguments: Sequence[Argument], arch: str, *, cache_dir: Path | str | None = None) -> Compiled:
    """Compile a `@T.prim_func` for `arguments` to a cubin in the cache, or find it there.

    TileLang and NVRTC work inside this process and cannot be interrupted: to bound them, call this in a process of its
    own.

    Args:
        arch: "sm_90" or "sm_90a"; from 9.0 up the architecture's own instructions ("a") are always on.

    Raises:
        CompileError: it does not compile for these arguments, or its host code does more than launch.
        HostError: TileLang is not installed, or cannot be used.
    """
    target = architecture(arch)
    function_facts = called(inspect.unwrap(function.orig_func), arguments)
    parts = {"compiler": compiler_key(facts), "arch": target, **function_facts}
    directory = cache_directory(cache_dir)
    key = content_key(parts)
    kept = find_pair(directory, key)
    if kept is not None:
        return Compiled(kept[0], _read(kept[1]))
    refuse_carried(parts)
    start = time.perf_counter()
    source, made = lowered(function, arguments, target)
    code, log = _compiled(source, target)
    with workspace(directory) as place:
        return Compiled(publish_pair(directory, key, place, code, _written(made), start, log), made)


def facts() -> dict[str, Any]:
    """Return what a build depends on of the compilers. Raises HostError where one is not installed."""
    return {"abi": ABI, "tilelang": version(), **dict(toolchain())}


def version() -> str:
    """Return the version of TileLang. Raises HostError where it is not installed."""
    try:
        return importlib.metadata.version(DISTRIBUTION)
    except importlib.metadata.PackageNotFoundError as error:
        raise HostError(f"TileLang is not installed: pip install {DISTRIBUTION}") from error


def package() -> Any:
    """Return the module `tilelang`. Raises HostError where it cannot be imported."""
    for name, value in VARIABLES.items():
        os.environ.setdefault(name, value)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            importlib.import_module("tilelang.language")
            return importlib.import_module("tilelang")
    except (ImportError, OSError, RuntimeError) as error:
        raise HostError(f"TileLang cannot be imported: {error}") from error


def lowered(function: Any, arguments: Sequence[Argument], arch: str) -> tuple[str, tuple[KernelLaunch, ...]]:
    """Return CUDA's source of a function for these arguments, and what it launches. Raises as `build` does."""
    tilelang = package()
    try:
        with warnings.catch_warnings():  # one that is an error elsewhere is none of the kernel's
            warnings.simplefilter("ignore")
            special = function.specialize(_constants(tilelang, function, arguments))
            target = tilelang.tvm.target.Target({"kind": "cuda", "arch": arch})
            with target:
                made = importlib.import_module("tilelang.engine").lower(special, target=target)
    except CompileError:
        raise
    except Exception as error:  # what TileLang raises has no base class of its own
        raise CompileError(_said(error), trim_log(_COLOURS.sub("", str(error)))) from error
    tensors = {
        str(buffer.data.name): number
        for number, parameter in enumerate(function.params)
        if (buffer := _buffer(function, parameter)) is not None
    }
    kernels = {
        str(name.name_hint): [str(one) for one in kernel.attrs["tirx.kernel_launch_params"]]
        for name, kernel in made.device_mod.functions.items()
    }
    (host,) = made.host_mod.functions.values()
    found = tuple(launches(host, kernels, tensors))
    if not found:
        raise CompileError("the function launches no kernel: expected `with T.Kernel(...)` in it")
    return str(made.kernel_source), found


def _constants(tilelang: Any, function: Any, arguments: Sequence[Argument]) -> Mapping[Any, Any]:
    """What each parameter of a function is, for these arguments."""
    tirx = tilelang.tvm.tirx
    if len(arguments) != len(function.params):
        raise CompileError(f"the function takes {len(function.params)} arguments, found {len(arguments)}")
    found = {}
    for parameter, one in zip(function.params, arguments, strict=True):
        buffer = _buffer(function, parameter)
        name = str(parameter.name if buffer is None else buffer.name)
        if isinstance(one, TensorFacts) != (buffer is not None):
            expected = "a number" if buffer is None else "a tensor"
            raise CompileError(f"{name}: expected {expected}, as its annotation says")
        if isinstance(one, TensorFacts):
            found[parameter] = _tensor(tirx, name, buffer, one)
        elif one is None:
            raise CompileError(f"{name}: found None, expected a number")
        elif isinstance(one, float) and not re.match("b?float", str(parameter.dtype)):  # TVM would cut it off
            raise CompileError(f"{name}: found {one!r}, expected a whole number: its annotation says {parameter.dtype}")
        else:
            found[parameter] = tirx.const(one, str(parameter.dtype))
    return found


def _tensor(tirx: Any, name: str, buffer: Any, facts: TensorFacts) -> Any:
    """A buffer with this tensor's sizes, once they agree with what the function says of it."""
    if str(buffer.dtype) != facts.dtype:  # TileLang calls dtypes as torch does
        raise CompileError(f"{name}: found a tensor of {facts.dtype}, expected one of {buffer.dtype}")
    sizes = [getattr(size, "value", None) for size in buffer.shape]
    shape = facts.shape or (1,)
    fits = len(sizes) == len(shape) and all(one in (None, size) for one, size in zip(sizes, shape, strict=True))
    if not fits:
        said = ", ".join(map(str, buffer.shape))
        raise CompileError(f"{name}: found a tensor of {list(facts.shape)}, expected ({said})")
    strides = [1] * len(shape)
    for axis in reversed(range(len(shape) - 1)):
        strides[axis] = strides[axis + 1] * shape[axis + 1]
    given = zip(shape, facts.strides or (1,), strides, strict=True)
    if any(size > 1 and one != dense for size, one, dense in given):
        raise CompileError(f"{name}: found strides {list(facts.strides)}, expected a contiguous tensor")
    if facts.alignment < ALIGNMENT:
        raise CompileError(
            f"{name}: found an address that is a multiple of {facts.alignment} bytes alone, expected {ALIGNMENT}: "
            "TileLang's loads and stores are as wide"
        )
    return tirx.decl_buffer(shape, buffer.dtype, name=buffer.name, strides=strides)


def _buffer(function: Any, parameter: Any) -> Any:
    """The buffer that a parameter stands for; None for a number."""
    return function.buffer_map[parameter] if parameter in function.buffer_map else None  # noqa: SIM401 - a map of TVM's


def _compiled(source: str, arch: str) -> tuple[bytes, str]:
    """(cubin, log) of TileLang's CUDA source."""
    if (found := _FOREIGN.search(source)) or (found := _STATE.search(source)):
        raise CompileError(f"the generated source has {found[0].strip()!r}, expected kernels and TileLang's headers")
    log = io.StringIO()
    options = core().ProgramOptions(
        name="candidate.cu",
        arch=arch,
        std="c++20",
        include_path=[*_templates(), *_toolkit()],
        device_as_default_execution_space=True,
        ptxas_options=["-v"],
        pch=True,  # the headers take a second; for the next shape in this process they are there already
    )
    try:
        program = core().Program(f"#include <tl_templates/cuda/nvrtc_std.h>\n{source}", "c++", options)
        code = program.compile("cubin", logs=log).code
    except errors() as error:
        text = f"{log.getvalue()}\n{error}".replace("NVRTC_ERROR_COMPILATION, compilation log:", "").strip()
        raise CompileError(first_error(text), trim_log(text)) from error
    return bytes(code), trim_log(log.getvalue().replace("\0", "").strip() + "\n")


def _templates() -> list[str]:
    """The directories of TileLang's headers, and of CUTLASS, which it brings along."""
    found = importlib.util.find_spec(DISTRIBUTION)
    places = list(found.submodule_search_locations or ()) if found is not None else []
    if not places:
        raise HostError(f"TileLang is not installed: pip install {DISTRIBUTION}")
    return [str(Path(places[0]) / "src"), str(Path(places[0]) / "3rdparty" / "cutlass" / "include")]


def _toolkit() -> list[str]:
    """The directories of CUDA's headers, libcu++ among them. Raises HostError where these are missing."""
    paths = [Path(path) for path in include_paths()]
    paths += [path.parent for path in paths if path.name == "cccl"]  # CUTLASS includes <cccl/cuda/std/...>
    if not any((path / HEADERS).is_file() for path in paths):
        raise HostError("libcu++ is not installed, which TileLang's kernels include: pip install nvidia-cuda-cccl")
    return list(dict.fromkeys(map(str, paths)))


def _said(error: Exception) -> str:
    """One line about an error of TileLang's."""
    lines = [line.strip() for line in _COLOURS.sub("", str(error)).splitlines() if line.strip()]
    plain = [line for line in lines if not _FRAME.match(line)]
    return (plain[-1] if plain else type(error).__name__)[:1000]


def _written(made: Sequence[KernelLaunch]) -> str:
    return json.dumps([asdict(one) for one in made])


def _read(text: str) -> tuple[KernelLaunch, ...]:
    def parameter(one: Any) -> int | TensorMap:
        if not isinstance(one, dict):
            return int(one)
        fields: dict[str, Any] = {key: tuple(value) if isinstance(value, list) else value for key, value in one.items()}
        return TensorMap(**fields)

    return tuple(
        KernelLaunch(
            one["kernel"],
            tuple(one["grid"]),
            tuple(one["block"]),
            one["shared"],
            tuple(map(parameter, one["parameters"])),
        )
        for one in json.loads(text)
    )
