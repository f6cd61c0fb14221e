"""C++ kernels for the CPU: built once per content, loaded with ctypes, called with tensors and numbers.

    kernels = cpp.compile(r'''
    extern "C" void add_relu(const float* x, const float* y, float* out, int64_t n) {
        #pragma omp parallel for simd
        for (int64_t i = 0; i < n; i++) out[i] = std::fmax(x[i] + y[i], 0.0f);
    }
    ''')
    kernels.add_relu(x, y, out, out.numel())

The source is C++20 for this machine's processor (`-march=native`) with OpenMP. <cstdint>, <cstddef>, <cstring>, <cmath>
and <omp.h> are included already, and <immintrin.h> where an x86 source names an `_mm` intrinsic or an `__m` type; line
numbers in messages are those of the source. Only `extern "C" void` functions can be called. The interpreter's lock is
released during a call.

Source: g++ by its command line; the function's parameters from its text (`signatures`). CXX names another compiler.
"""

from __future__ import annotations

import ctypes
import os
import platform
import re
import shlex
import shutil
import signal
import time
from collections.abc import Callable, Iterable
from functools import lru_cache
from pathlib import Path
from typing import TypedDict

from . import recording as _recording
from . import signatures as _signatures
from .cache import Build, cache_directory, content_key, find, publish, workspace
from .calls import C_TYPES, Argument, converter
from .errors import Cause, CompileError, HostError, trim_log
from .flags import checked
from .process import Finished, run_limited
from .signatures import Parameter

ABI = 1
"""Counts up whenever what this module builds from the same source changes."""

BASE_FLAGS = ("-O3", "-march=native", "-fopenmp", "-fPIC", "-std=c++20", "-fno-math-errno", "-fno-gnu-unique")
"""Of the last: statics of templates and of inline functions would else be one for all kernels of the process that have
such a name, whatever their code says."""
_MESSAGE_FLAGS = (
    "-fdiagnostics-color=never",
    "-fmax-errors=10",
    "-ftemplate-depth=256",
    "-ftemplate-backtrace-limit=4",
    "-Wall",
    "-Wno-unused",
)
# Linked apart from the chosen flags: with -ffast-math on the link line, loading the library would change the process's
# floating-point mode.
_LINK_FLAGS = ("-shared", "-fopenmp", "-Wl,-z,defs", "-Wl,-Bsymbolic")
_HEADERS = ("cstdint", "cstddef", "cstring", "cmath", "omp.h")
_MEMORY_BYTES = 4 << 30

Run = Callable[..., Finished]
"""Runs one compiler command with the arguments and the answer of `process.run_limited`."""


class _Bounds(TypedDict):
    cwd: Path
    timeout_s: float
    memory_bytes: int


class Function:
    """One kernel. Calling it takes exactly its parameters, by position.

    Raises:
        TypeError: too few or many arguments, or one that its parameter cannot take.
        OverflowError: an integer that its parameter cannot hold.
    """

    def __init__(self, name: str, parameters: list[Parameter], pointer: ctypes._NamedFuncPointer) -> None:
        self.name = name
        self.parameters = tuple(parameters)
        pointer.restype = None
        pointer.argtypes = [_c_type(parameter) for parameter in parameters]
        self._pointer = pointer
        self._converters = [converter(name, parameter, "cpu") for parameter in parameters]
        self._scalars = [None if parameter.kind == "pointer" else _c_type(parameter) for parameter in parameters]

    def __call__(self, *arguments: Argument) -> None:
        if len(arguments) != len(self._converters):
            names = ", ".join(parameter.name for parameter in self.parameters)
            raise TypeError(f"{self.name} takes {len(self.parameters)} arguments ({names}), found {len(arguments)}")
        values = [convert(argument) for convert, argument in zip(self._converters, arguments, strict=True)]
        if _recording.active:
            _recording.note_c_function(self.name, self._pointer, self._scalars, values)
        self._pointer(*values)


class Kernels:
    """The functions of one source, as attributes."""

    def __init__(self, functions: dict[str, Function]) -> None:
        self.__dict__.update(functions)

    def __getattr__(self, name: str) -> Function:
        raise AttributeError(f"no kernel named {name!r}: expected one of {', '.join(sorted(self.__dict__))}")


def compile(source: str, flags: Iterable[str] = ()) -> Kernels:  # noqa: A001  candidates say cpp.compile
    """Build `source` unless it has been built, load it, and return its functions.

    Args:
        source: C++20 with `extern "C" void` functions.
        flags: from `flags.CPP_FLAGS`, added to `BASE_FLAGS`.

    Raises:
        CompileError: it does not compile, breaks a limit, or declares a parameter that no argument fits.
    """
    parameters = signatures(source)
    built = build(source, flags)
    try:
        library = ctypes.CDLL(str(built.path))
    except OSError as error:
        raise CompileError(f"the built kernel cannot be loaded: {error}") from error
    return Kernels({name: Function(name, declared, library[name]) for name, declared in parameters.items()})


def signatures(source: str) -> dict[str, list[Parameter]]:
    """The parameters of each `extern "C"` function that `source` defines.

    Raises:
        CompileError: there is none, or a parameter has a type that no argument fits; the message names it.
    """
    return _signatures.signatures(source)


def build(
    source: str,
    flags: Iterable[str] = (),
    *,
    cache_dir: Path | str | None = None,
    timeout_s: float = 120.0,
    memory_bytes: int = _MEMORY_BYTES,
    run: Run = run_limited,
) -> Build:
    """Build `source` into the cache, or find it there. Nothing of it is loaded or run.

    Args:
        cache_dir: in place of `cache.cache_directory()`.
        timeout_s: wall-clock seconds for compiling, and again for linking.
        memory_bytes: address space of each compiler process.
        run: starts the compiler; another than `run_limited` may hold it closer.

    Raises:
        CompileError: the compiler refused it (with its log), ran out of time or memory, or is not there.
    """
    chosen = checked(flags, "cpp")
    directory = cache_directory(cache_dir)
    key = content_key({"abi": ABI, "source": source, "flags": [*BASE_FLAGS, *chosen], **dict(toolchain())})
    found = find(directory, key, ".so")
    if found is not None:
        return found
    start = time.perf_counter()
    with workspace(directory) as place:
        (place / "candidate.cpp").write_text(source + "\n", "utf-8", "replace")
        (place / "headers.hpp").write_text(headers(source))
        files = ["-include", "headers.hpp", "-c", "candidate.cpp", "-o", "kernel.o"]
        bounds: _Bounds = {"cwd": place, "timeout_s": timeout_s, "memory_bytes": memory_bytes}
        log = _run(run, [*compiler(), *BASE_FLAGS, *chosen, *_MESSAGE_FLAGS, *files], **bounds)
        log += _run(run, [*compiler(), *_LINK_FLAGS, "kernel.o", "-o", "kernel.so"], **bounds)
        return publish(
            directory, key, ".so", place / "kernel.so", log=trim_log(log), seconds=time.perf_counter() - start
        )


@lru_cache
def toolchain() -> tuple[tuple[str, str], ...]:
    """What a build depends on besides its source: the compiler's file and the processor.

    Read once and without starting a process, so that a process that has called it can still find builds when it may no
    longer start any or read /proc. A compiler is told apart by its path, size and time of change.
    """
    program = os.path.realpath(compiler()[-1])
    status = os.stat(program)
    return (
        ("compiler", f"{shlex.join(compiler())} {program} {status.st_size} {status.st_mtime_ns}"),
        ("machine", platform.machine()),
        ("processor", _processor()),
    )


@lru_cache
def compiler() -> tuple[str, ...]:
    """The compiler's command, its program found on PATH. Raises HostError where there is none."""
    words = shlex.split(os.environ.get("CXX") or "g++")
    paths = [shutil.which(word) for word in words]
    if not words or paths[-1] is None:
        raise HostError(
            f"no C++ compiler: found no {' '.join(words) or 'g++'!r} on PATH; install g++ or name a compiler in CXX"
        )
    return (*words[:-1], paths[-1])


def _processor() -> str:
    """The processor's model and instruction sets, as -march=native sees them."""
    try:
        lines = Path("/proc/cpuinfo").read_text().split("\n\n", 1)[0].splitlines()
    except OSError:
        return platform.processor()
    wanted = ("cpu family", "model", "model name", "stepping", "flags", "Features", "CPU implementer", "CPU part")
    return "\n".join(line for line in lines if line.split(":")[0].strip() in wanted)


def headers(source: str) -> str:
    """The text that is included before `source`."""
    lines = [f"#include <{header}>" for header in _HEADERS]
    if re.search(r"\b_mm|\b__m\d", source):
        lines += ["#if defined(__x86_64__)", "#include <immintrin.h>", "#endif"]
    return "\n".join([*lines, ""])


def _run(run: Run, command: list[str], *, cwd: Path, timeout_s: float, memory_bytes: int) -> str:
    """Run one compiler command and return its log."""
    try:
        finished = run(command, cwd=cwd, timeout_s=timeout_s, memory_bytes=memory_bytes)
    except FileNotFoundError as error:
        raise HostError(f"the C++ compiler cannot be started: {error}") from error
    if finished.timed_out or finished.returncode != 0:
        cause = _cause(finished)
        raise CompileError(_why(finished, cause, timeout_s, memory_bytes), trim_log(finished.log), cause)
    return finished.log


def _cause(finished: Finished) -> Cause | None:
    """What kept the compiler from coming to an end; None where it did, and refused the source."""
    if finished.timed_out:
        return "timeout"
    if re.search(r"out of memory|virtual memory exhausted|Cannot allocate memory|bad_alloc", finished.log):
        return "memory"
    # The driver's words for a compiler that somebody killed: the system, where its memory ran out.
    return "died" if finished.returncode == -signal.SIGKILL or "Killed signal" in finished.log else None


def _why(finished: Finished, cause: Cause | None, timeout_s: float, memory_bytes: int) -> str:
    """The reason of a failed build in one line."""
    if cause == "timeout":
        return f"the compiler ran longer than {timeout_s:g} s"
    if cause == "memory":
        return f"the compiler needed more than {memory_bytes >> 20} MiB of memory"
    lines = finished.log.splitlines()
    for pattern in (r"^(?!collect2).*\berror: ", "undefined reference", "multiple definition", "error: "):
        for line in lines:
            if re.search(pattern, line):
                return line.strip()[:500]
    return f"the compiler ended with status {finished.returncode}: {lines[-1].strip()[:500] if lines else 'no message'}"


def _c_type(parameter: Parameter) -> type:
    """How ctypes passes the parameter."""
    if parameter.kind == "pointer":
        return ctypes.c_void_p
    return C_TYPES[parameter.scalar]
