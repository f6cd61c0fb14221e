"""The extension that replays launch plans: built once for a Python by the C++ compiler, kept in the build cache.

It is a module of its own of `plan_source.SOURCE` (a table of plans) with Python's headers alone, which takes a second
or two. Its functions, as callers of this package use them:

    table(exchange, tensor, parameter, block, grad_enabled, is_negative, bump, stream, quiet, alignments, mutated,
          kernels, graphs_from) -> table; graphs_from: the call of a plan of several launches on a stream from which
        they are one CUDA graph, or 0 for never
    table.plan(arguments, kernel, device, outputs, slots, steps, keep) -> plan; a slot is a function that makes a tensor
        and its arguments in a tuple, or its one argument
    table.add(plan), table.clear(), table.size()
    table.call(*arguments), table.inside(*arguments) -> what the op returns, or NotImplemented
    table.run(plan, arguments, outputs) -> whether the plan is for these arguments, and was done
    table.grant(kernel, calls), table.revoke(), table.served(kernel)
    table.graphs() -> graphs_from, how many calls were graphs, and why how many plans have none
    open_driver(path) -> whether CUDA's functions are there
"""

from __future__ import annotations

import importlib.util
import sys
import sysconfig
import time
from functools import lru_cache
from pathlib import Path
from types import ModuleType

from .cache import Build, cache_directory, content_key, find, publish, workspace
from .cpp import compiler, toolchain
from .errors import CompileError, trim_log
from .plan_source import ABI, SOURCE
from .process import run_limited

NAME = "warpsmith_plans"
_FLAGS = ("-O2", "-std=c++17", "-fPIC", "-shared", "-pthread", "-fvisibility=hidden", "-fdiagnostics-color=never")
_TIMEOUT_S = 120.0
_MEMORY_BYTES = 4 << 30


_built: Path | None = None


def use(path: Path) -> None:
    """Load the extension from this file, in a process that may not build it; before `extension` is first called."""
    global _built  # noqa: PLW0603 - one extension a process
    _built = path


@lru_cache(maxsize=1)
def extension() -> ModuleType:
    """Return the extension, built unless the cache has it.

    Raises:
        CompileError: it does not compile, Python's headers are not there, or it cannot be loaded.
        HostError: there is no C++ compiler. CacheError: the cache cannot be written.
    """
    path = _built or build().path
    name = f"warpsmith_{path.stem}.{NAME}"  # Python keeps extensions by name, and another build is another one
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise CompileError(f"the built extension {path} cannot be loaded")
    try:
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    except ImportError as error:
        raise CompileError(f"the built extension cannot be loaded: {error}") from error
    return module


def build(cache_dir: Path | str | None = None) -> Build:
    """Build the extension into the cache, or find it there. Raises as `extension` does."""
    headers = Path(sysconfig.get_paths()["include"])
    directory = cache_directory(cache_dir)
    python = f"{sys.implementation.cache_tag} {sysconfig.get_config_var('EXT_SUFFIX')}"
    key = content_key({"abi": ABI, "source": SOURCE, "flags": _FLAGS, "python": python, **dict(toolchain())})
    found = find(directory, key, ".so")
    if found is not None:
        return found
    if not (headers / "Python.h").is_file():
        raise CompileError(f"found no Python.h in {headers}: Python's headers are not installed")
    start = time.perf_counter()
    with workspace(directory) as place:
        (place / "plans.cpp").write_text(SOURCE)
        command = [*compiler(), *_FLAGS, f"-I{headers}", "plans.cpp", "-o", "plans.so"]
        done = run_limited(command, cwd=place, timeout_s=_TIMEOUT_S, memory_bytes=_MEMORY_BYTES)
        if done.timed_out or done.returncode:
            raise CompileError(f"the compiler ended with status {done.returncode}", trim_log(done.log))
        seconds = time.perf_counter() - start
        return publish(directory, key, ".so", place / "plans.so", log=trim_log(done.log), seconds=seconds)
