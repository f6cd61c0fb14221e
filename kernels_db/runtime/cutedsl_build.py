"""CuTe DSL functions to cubins in the cache, with what their host code launches. No GPU is needed.

A function is compiled for the shapes, strides, dtypes and alignments of its tensors and for its numbers, so that
whatever it launches is known beforehand. NVIDIA's package `nvidia-cutlass-dsl` is imported when it is first needed.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import inspect
import json
import os
import re
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from .cache import Build, cache_directory, content_key, find, publish, workspace
from .cutedsl_host import HostLaunch, Parameter, launches
from .errors import CompileError, HostError, trim_log
from .recording import CLUSTER, COOPERATIVE, PROGRAMMATIC

ABI = 1
"""Counts up whenever what this module builds from the same source changes."""
DISTRIBUTION = "nvidia-cutlass-dsl"
DTYPES = {
    "bool": "Uint8",
    "bfloat16": "BFloat16",
    "float16": "Float16",
    "float32": "Float32",
    "float64": "Float64",
    "float8_e4m3fn": "Float8E4M3FN",
    "float8_e5m2": "Float8E5M2",
    "int8": "Int8",
    "int16": "Int16",
    "int32": "Int32",
    "int64": "Int64",
    "uint8": "Uint8",
    "uint16": "Uint16",
    "uint32": "Uint32",
    "uint64": "Uint64",
}
"""torch's dtypes, and what the DSL calls them. A bool is the byte that it lies in."""
VARIABLES = {"CUTE_DSL_DISABLE_FILE_CACHING": "1"}
"""Of a process that compiles: builds are kept here, and not by the DSL as well."""
CARRIED_VARIABLE = "WARPSMITH_CARRIED_BUILDS"
"""Where the builds in the cache were compiled on another host: the `compiler_key` there. Nothing is compiled then."""
NOT_CARRIED = "the builds that came with the job have none of"
"""How the message begins where a call is none of those that builds from another host were made for."""
_ATTRIBUTES = frozenset({CLUSTER, COOPERATIVE, PROGRAMMATIC})
_COLOURS = re.compile(r"\x1b\[[0-9;]*m")
_ERROR = re.compile(r"error\[\w+\]:\s*(.+)")
_PLACE = re.compile(r"-->\s*(\S+?):(\d+)")


@dataclass(frozen=True)
class TensorFacts:
    """What a function is compiled for of one tensor: strides in elements, the alignment of its address in bytes."""

    dtype: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    alignment: int


Argument = TensorFacts | int | float | bool | None
"""An argument of a function, as far as it is compiled for it."""


@dataclass(frozen=True)
class Compiled:
    """A function compiled for some arguments: the cubin, and what it launches, in order."""

    build: Build
    launches: tuple[HostLaunch, ...]


def build(
    function: Callable[..., Any], arguments: Sequence[Argument], arch: str, *, cache_dir: Path | str | None = None
) -> Compiled:
    """Compile a `@cute.jit` function for `arguments` to a cubin in the cache, or find it there.

    The DSL works inside this process, runs the function's Python, and cannot be interrupted: to bound it, call this in
    a process of its own.

    Args:
        arch: "sm_90" or "sm_90a"; from 9.0 up the architecture's own instructions ("a") are always on.

    Raises:
        CompileError: it does not compile for these arguments, or its host code does more than launch.
        HostError: the DSL is not installed, or cannot be used.
    """
    target = architecture(arch)
    parts = {"compiler": compiler_key(facts), "arch": target, **called(inspect.unwrap(function), arguments)}
    directory = cache_directory(cache_dir)
    key = content_key(parts)
    kept = find_pair(directory, key)
    if kept is not None:
        return Compiled(kept[0], _read(kept[1]))
    refuse_carried(parts)
    start = time.perf_counter()
    with workspace(directory) as place:
        code, made = _compiled(function, arguments, target, place)
        return Compiled(publish_pair(directory, key, place, code, _written(made), start), made)


def facts() -> dict[str, Any]:
    """Return what a build depends on of the compiler. Raises HostError where it is not installed."""
    return {"abi": ABI, "dsl": version()}


def compiler_key(own: Callable[[], dict[str, Any]]) -> str:
    """Name the compiler in the keys of builds: that of the builds which came along, else the one here, by its facts."""
    return os.environ.get(CARRIED_VARIABLE) or content_key(own())


def refuse_carried(parts: dict[str, Any]) -> None:
    """Raise HostError where builds came along, so that none is compiled here: they lack the one of these parts."""
    if CARRIED_VARIABLE in os.environ:
        raise HostError(
            f"{NOT_CARRIED} {parts['function']!r} for {parts['arch']} and the arguments "
            f"{json.dumps(parts['arguments'])[:600]}: expected every call of `run` to be one that was seen when they "
            "were compiled"
        )


def called(function: Callable[..., Any], arguments: Sequence[Argument]) -> dict[str, Any]:
    """Return what a build depends on of a function, which nothing wraps, and of its arguments."""
    return {
        "source": Path(function.__code__.co_filename).read_text("utf-8"),
        "function": function.__qualname__,
        "arguments": [asdict(one) if isinstance(one, TensorFacts) else [type(one).__name__, one] for one in arguments],
    }


def find_pair(directory: Path, key: str) -> tuple[Build, str] | None:
    """Find a cubin of the cache, and the text of what it launches."""
    found = find(directory, key, ".launches")
    if found is None:
        return None
    return Build(found.path.with_suffix(".cubin"), found.log, found.seconds, True), found.path.read_text()


def publish_pair(
    directory: Path, key: str, place: Path, code: bytes, launched: str, start: float, log: str = ""
) -> Build:
    """Keep a cubin and the text of what it launches, built since `start` of `time.perf_counter`, through `place`."""
    (place / "kernel.cubin").write_bytes(code)
    (place / "kernel.launches").write_text(launched)
    seconds = time.perf_counter() - start
    cubin = publish(directory, key, ".cubin", place / "kernel.cubin", log=log, seconds=seconds)
    publish(directory, key, ".launches", place / "kernel.launches", log="", seconds=seconds)
    return cubin


def version() -> str:
    """Return the version of the DSL. Raises HostError where it is not installed."""
    try:
        return importlib.metadata.version(DISTRIBUTION)
    except importlib.metadata.PackageNotFoundError as error:
        raise HostError(f"CuTe DSL is not installed: pip install {DISTRIBUTION}") from error


def architecture(arch: str) -> str:
    """Return the DSL's name of an architecture: sm_90a for sm_90. Raises CompileError for what is none."""
    match = re.fullmatch(r"sm_(\d{2,3})[af]?", arch)
    if match is None:
        raise CompileError(f"architecture: found {arch!r}, expected sm_90 and its like")
    return f"sm_{match[1]}" + ("a" if int(match[1]) >= 90 else "")


def dsl() -> Any:
    """Return the module `cutlass`. Raises HostError where it cannot be imported."""
    for name, value in VARIABLES.items():
        os.environ.setdefault(name, value)
    try:
        importlib.import_module("cutlass.cute.runtime")
        return importlib.import_module("cutlass")
    except (ImportError, OSError) as error:
        raise HostError(f"CuTe DSL cannot be imported: {error}") from error


def _compiled(
    function: Callable[..., Any], arguments: Sequence[Argument], arch: str, place: Path
) -> tuple[bytes, tuple[HostLaunch, ...]]:
    """The cubin of a function and what it launches."""
    cutlass = dsl()
    given = [_fake(cutlass, one) if isinstance(one, TensorFacts) else one for one in arguments]
    options = f"--keep-cubin --gpu-arch {arch} --dump-dir {place}"
    try:
        with warnings.catch_warnings():  # one that is an error elsewhere is none of the kernel's
            warnings.simplefilter("ignore")
            made = cutlass.cute.compile(function, *given, options=options)
        code, module = made.__cubin__, made.ir_module
    except Exception as error:  # what the function's Python raises, and every error of the DSL's
        raise CompileError(*_said(error)) from error
    if not isinstance(code, bytes) or module is None:
        raise CompileError("the function launches no kernel: expected kernel(...).launch(grid=..., block=...) in it")
    found = tuple(launches(module, list(_passed(cutlass, function, arguments))))
    for one in found:
        if unknown := [kind for kind, *_ in one.attributes if kind not in _ATTRIBUTES]:
            raise CompileError(
                f"a launch has CUDA's attribute {unknown[0]}, expected clusters, cooperative or pdl alone"
            )
    return code, found


def _fake(cutlass: Any, facts: TensorFacts) -> Any:
    """The DSL's stand-in for a tensor, whose layout is constant."""
    if facts.dtype not in DTYPES:
        raise CompileError(f"dtype: found {facts.dtype}, expected one of {', '.join(sorted(DTYPES))}")
    return cutlass.cute.runtime.make_fake_tensor(
        getattr(cutlass, DTYPES[facts.dtype]),
        facts.shape or (1,),
        facts.strides or (1,),
        assumed_align=facts.alignment,
    )


def _passed(cutlass: Any, function: Callable[..., Any], arguments: Sequence[Argument]) -> Any:
    """Yield what the compiled host function is given: every argument that is no constant of it."""
    parameters = list(inspect.signature(inspect.unwrap(function)).parameters.values())
    for number, (parameter, one) in enumerate(zip(parameters, arguments, strict=False)):
        if isinstance(one, TensorFacts):
            yield number, one.alignment % 16
        elif one is not None and not _is_constant(cutlass, parameter.annotation):
            yield one


def _is_constant(cutlass: Any, annotation: Any) -> bool:
    if isinstance(annotation, str):
        return annotation.rpartition(".")[2].startswith("Constexpr")
    return annotation is cutlass.Constexpr or getattr(annotation, "__origin__", None) is cutlass.Constexpr


def _said(error: Exception) -> tuple[str, str]:
    """One line about an error of the DSL's, with the candidate's line where it names one; and all that it says."""
    text = _COLOURS.sub("", str(error)).strip() or type(error).__name__
    found, place = _ERROR.search(text), _PLACE.search(text)
    message = found[1] if found else text.splitlines()[0]
    where = f"line {place[2]}: " if place and Path(place[1]).name == "candidate.py" else ""
    return f"{where}{message}"[:1000], trim_log(text)


def _written(made: Sequence[HostLaunch]) -> str:
    def plain(one: HostLaunch) -> dict[str, Any]:
        parameters = [{"template": each.template.hex(), "words": each.words} for each in one.parameters]
        return {**asdict(one), "parameters": parameters}

    return json.dumps([plain(one) for one in made])


def _read(text: str) -> tuple[HostLaunch, ...]:
    def made(one: dict[str, Any]) -> HostLaunch:
        parameters = tuple(
            Parameter(
                bytes.fromhex(each["template"]), tuple((at, argument, behind) for at, argument, behind in each["words"])
            )
            for each in one["parameters"]
        )
        attributes = tuple((kind, x, y, z) for kind, x, y, z in one["attributes"])
        return HostLaunch(one["kernel"], tuple(one["grid"]), tuple(one["block"]), one["shared"], attributes, parameters)

    return tuple(made(one) for one in json.loads(text))
