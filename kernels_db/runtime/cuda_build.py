"""CUDA sources to cubins in the cache, by NVRTC through NVIDIA's cuda-core. Neither a GPU nor a toolkit is needed."""

from __future__ import annotations

import importlib
import importlib.util
import io
import re
import threading
import time
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path
from typing import Any

from .cache import Build, cache_directory, content_key, find, publish, workspace
from .errors import CompileError, HostError, trim_log
from .flags import checked
from .nvrtc_headers import HEADERS

ABI = 3
"""Counts up whenever what this module builds from the same source changes."""

_LOG_BYTES = 64 * 1024
_REDEFINED_MACRO = 47  # libcu++ defines INFINITY and NAN for NVRTC, as our math.h does


def build(
    source: str, arch: str = "sm_90a", flags: Iterable[str] = (), *, cache_dir: Path | str | None = None
) -> Build:
    """Compile `source` to a cubin in the cache, or find it there. It needs no GPU and runs nothing of the source.

    NVRTC works inside this process and cannot be interrupted: to bound it, call this in a process of its own. The log
    holds what ptxas says of registers, spills and shared memory.

    Args:
        arch: "sm_90" or "sm_90a"; from 9.0 up the architecture's own instructions ("a") are always on.

    Raises:
        CompileError: NVRTC refused it (with its log).
        HostError: NVRTC or cuda-core is not installed, or cannot be used.
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


@lru_cache
def toolchain() -> tuple[tuple[str, str], ...]:
    """What a build depends on besides its source: NVRTC's version and the directories of its headers.

    Raises:
        HostError: NVRTC is not installed, or cannot be used.
    """
    try:
        nvrtc = importlib.import_module("cuda.bindings.nvrtc")
        status, major, minor = nvrtc.nvrtcVersion()
    except (ImportError, RuntimeError) as error:
        raise HostError(f"NVRTC is not installed: {error}") from error
    if int(status) != 0:
        raise HostError(f"NVRTC cannot be used: status {status}")
    return (("nvrtc", f"{major}.{minor}"), ("include", ":".join(include_paths())))


@lru_cache
def include_paths() -> tuple[str, ...]:
    """The directories of CUDA's own headers: the toolkit's, and those that come with Triton where the toolkit's are
    missing, or are the runtime's wheel alone, which lacks what `mma.h` includes."""
    finder = importlib.import_module("cuda.pathfinder")
    found = [finder.find_nvidia_header_directory(name) for name in ("cudart", "cccl")]
    paths = [str(path) for path in found if path]
    paths += [str(Path(path) / "cccl") for path in paths]  # since CUDA 13, inside the toolkit's own
    whole = any((Path(path) / "crt" / "mma.h").is_file() for path in paths)
    specification = None if whole else importlib.util.find_spec("triton")
    places = specification.submodule_search_locations if specification is not None else None
    paths += [str(Path(place) / "backends" / "nvidia" / "include") for place in places or []]
    return tuple(path for path in dict.fromkeys(paths) if Path(path).is_dir())


def _nvrtc(source: str, arch: str, flags: tuple[str, ...], headers: Path) -> tuple[bytes, str]:
    """(cubin, log) of `source`; `headers` holds those that NVRTC lacks."""
    log = io.StringIO()
    options = core().ProgramOptions(
        name="candidate.cu",
        arch=arch,
        include_path=[str(headers), *include_paths()],
        pre_include=["stdint.h", "math.h", "cuda.h"],
        diag_suppress=[_REDEFINED_MACRO],
        **_options(flags),
    )
    try:
        program = core().Program(source, "c++", options)
        code = program.compile("cubin", logs=log).code
    except errors() as error:
        text = f"{log.getvalue()}\n{error}".replace("NVRTC_ERROR_COMPILATION, compilation log:", "").strip()
        raise CompileError(first_error(text), trim_log(text)) from error
    return bytes(code), log.getvalue().replace("\0", "").strip() + "\n"


def errors() -> tuple[type[Exception], ...]:
    """What cuda-core raises when a source does not compile; its base class has no public place."""
    core()
    utilities = importlib.import_module("cuda.core._utils.cuda_utils")
    return (utilities.CUDAError, utilities.NVRTCError, RuntimeError)


def _options(flags: tuple[str, ...]) -> dict[str, Any]:
    """The fields of ProgramOptions that `flags` set."""
    fields: dict[str, Any] = {"std": "c++20", "ptxas_options": ["-v"]}
    macros: list[str | tuple[str, str]] = []
    names = {"fmad": "fma", "prec-div": "prec_div", "prec-sqrt": "prec_sqrt", "ftz": "ftz"}
    for flag in flags:
        name, _, value = flag.removeprefix("--").partition("=")
        if flag.startswith("-D"):
            macro, _, text = flag[2:].partition("=")
            macros.append((macro, text) if text else macro)
        elif name == "maxrregcount":
            fields["max_register_count"] = int(value)
        elif name == "ptxas-options":
            fields["ptxas_options"].append(value)
        elif name == "std":
            fields["std"] = value
        elif name in names:
            fields[names[name]] = value == "true"
        else:
            fields[name.replace("-", "_")] = True
    if macros:
        fields["define_macro"] = macros
    return fields


def first_error(log: str) -> str:
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
def core() -> Any:
    """The module cuda.core. Raises HostError where it is not installed."""
    with _importing:
        try:
            return importlib.import_module("cuda.core")
        except ImportError as error:
            raise HostError(f"cuda-core is not installed: {error}") from error


_importing = threading.Lock()
"""Modules of cuda-core import each other: of two threads that begin at once one may find half of it."""
