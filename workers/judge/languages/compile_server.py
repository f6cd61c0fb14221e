"""The compile server: a preloaded server that forks one limited child for each compilation.

Importing the compilers (torch, Triton and NVRTC) takes seconds; a fork of a process that has them takes milliseconds. A
request names a module of ours, whose `main` reads a request file and writes an answer file.

Children are confined, because one that compiles Triton imports the candidate. The server sees no GPU: FakeTensorMode
would make a CUDA context in every child, beside the code that is timed.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import os
import sys
import traceback
from collections.abc import Sequence
from typing import Any

from warpsmith.workers.judge.machine import process_control
from warpsmith.workers.judge.machine.garbage import imports_kept
from warpsmith.workers.judge.preloaded import server
from warpsmith.workers.judge.sandbox import sandbox

MODULES = tuple(f"warpsmith.workers.judge.languages.{name}_child" for name in ("triton", "cuda", "cutedsl", "tilelang"))
_NICENESS = 10
_MORE_TASKS = 256


def _import_modules() -> None:
    for module in MODULES:
        with contextlib.suppress(ImportError):  # a compiler that is not installed: who asks for it is told so
            importlib.import_module(module)


def _import_dynamo() -> None:
    # What entering FakeTensorMode imports, for seconds; entering it starts CUDA's own thread in some versions.
    for module in ("torch.fx.experimental.symbolic_shapes", "torch._dynamo", "torch._inductor.config"):
        importlib.import_module(module)


def _enter_fake_tensors() -> None:
    from torch._subclasses.fake_tensor import FakeTensorMode  # noqa: PLC0415 - late, as all that is preloaded

    with FakeTensorMode():
        pass


def _hash_triton() -> None:
    for module in ("triton.runtime.cache", "triton.compiler.compiler"):
        with contextlib.suppress(ImportError):
            # A hash over Triton's own files, kept by the function; one of the two has it, by Triton's version.
            getattr(importlib.import_module(module), "triton_key", str)()


def _load_nvrtc() -> None:
    from warpsmith.kernels_db.runtime import CompileError, cuda  # noqa: PLC0415 - late, as all that is preloaded

    with contextlib.suppress(CompileError):
        cuda.toolchain()
        importlib.import_module("cuda.core")


def _load_cute_dsl() -> None:
    from warpsmith.kernels_db.runtime import HostError, cutedsl_build  # noqa: PLC0415 - late, as all that is preloaded

    with contextlib.suppress(HostError):
        cutedsl_build.dsl()


_STEPS = (
    _import_modules,
    _import_dynamo,
    _enter_fake_tensors,
    _hash_triton,
    _load_nvrtc,
    _load_cute_dsl,
)


def _preload(skipped: Sequence[str]) -> None:
    """Take the steps of preloading, less those named.

    A step after which there is a second thread, in whatever version of a library, is undone by starting again without
    it: forking beside another thread would copy locks that are never released. Children then take that step themselves.
    """
    for step in _STEPS:
        if step.__name__ in skipped:
            continue
        step()
        if server.threads() > 1:
            print(f"compile server: {step.__name__} starts a thread here, so it is not preloaded", file=sys.stderr)
            sys.stderr.flush()
            command = [sys.executable, "-P", "-m", "warpsmith.workers.judge.languages.compile_server", sys.argv[1]]
            os.execv(sys.executable, [*command, *skipped, step.__name__])  # noqa: S606 - ourselves


def _become_compiler(ability: sandbox.Ability, request: dict[str, Any], fds: list[int]) -> int:
    os.nice(_NICENESS)  # compilers yield to processes that are timed
    os.environ.clear()
    os.environ.update(request["environment"])
    limits = dict(request["limits"])
    limits["AS"] += process_control.virtual_bytes(os.getpid())  # what is mapped already is not the child's doing
    limits["NPROC"] = process_control.user_tasks() + _MORE_TASKS
    process_control.set_limits(limits)
    process_control.drop_privileges()
    sandbox.confine(sandbox.compiler_profile(request["directory"], request["environment"]), ability)
    return run_module(str(request["module"]))


def run_module(name: str) -> int:
    """Run `main` of one of MODULES and return the exit status.

    It runs as `python -m name request.json answer.json` would.
    """
    sys.argv = [name, "request.json", "answer.json"]
    try:
        if name not in MODULES:
            raise ValueError(f"module: found {name!r}, expected one of {', '.join(MODULES)}")
        importlib.import_module(name).main()
    except BaseException:  # noqa: BLE001 - whatever the candidate raises, SystemExit too
        traceback.print_exc()
        return 1
    finally:
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError, ValueError):  # beyond the limit of a file's size, or closed
                stream.flush()
    return 0


def main() -> None:
    control, ability = server.begin()
    with imports_kept():
        _preload(sys.argv[2:])
    server.serve(control, ability, functools.partial(_become_compiler, ability))


if __name__ == "__main__":
    main()
