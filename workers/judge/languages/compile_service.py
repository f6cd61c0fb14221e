"""This process's compile server, shared by all threads.

It is started when something is first compiled, and started again when it died.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path

from warpsmith import IMPORT_ROOT
from warpsmith.workers.judge.languages.prepared import CompileLimits
from warpsmith.workers.judge.machine.timing_guard import QUIET
from warpsmith.workers.judge.preloaded.client import ForkServerDied, PreloadedServer, Shared

_MODULE = "warpsmith.workers.judge.languages.compile_server"
_FILE_BYTES = 256 * 1024 * 1024
_PASSED_ON = ("PATH", "CUDA_HOME", "CUDA_PATH", "LD_LIBRARY_PATH")  # where the compilers and their headers are


def python_path() -> str:
    """Return the PYTHONPATH with which a compiling process finds Warpsmith."""
    return os.pathsep.join(
        [str(IMPORT_ROOT), *(path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path)]
    )


def server_environment(home: Path) -> dict[str, str]:
    """Return the whole environment of the server.

    Of the caller's it has only where to find programs. One thread, so that it can fork; no interpreter for Triton,
    which reads that when it is imported; no GPU.
    """
    return {
        "PATH": os.defpath,
        "LC_ALL": "C",
        **{name: os.environ[name] for name in _PASSED_ON if name in os.environ},
        "HOME": str(home),
        "TMPDIR": str(home),
        "PYTHONPATH": python_path(),
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONNOUSERSITE": "1",
        "OMP_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
        "TRITON_INTERPRET": "0",
        "CUDA_VISIBLE_DEVICES": "",
        "PYTORCH_NVML_BASED_CUDA_CHECK": "1",  # so that torch looks for a GPU without starting CUDA, and its thread
    }


class CompileServer(PreloadedServer):
    """One server process. Thread-safe. Close it."""

    def __init__(self) -> None:
        """Start the process without waiting for it."""
        self._home = tempfile.TemporaryDirectory(prefix="warpsmith-compile-")
        home = Path(self._home.name)
        super().__init__(_MODULE, server_environment(home), home)

    def run(self, module: str, place: Path, variables: Mapping[str, str], limits: CompileLimits) -> tuple[int, bool]:
        """Run `main` of a module in a child in directory `place`.

        The file `output` there gets the text that it prints. Returns its exit code (negative: the signal) and whether
        its time was over. It is gone with everything that it started. Raises ForkServerDied.
        """
        bounds = {
            "AS": limits.memory_bytes,  # beyond the server's own
            "CPU": int(limits.seconds) + 2,
            "FSIZE": _FILE_BYTES,
            "CORE": 0,
        }
        environment = {**server_environment(place), **variables}
        request = {"module": module, "directory": str(place), "environment": environment, "limits": bounds}
        with (place / "output").open("wb") as output:
            child = self.fork(request, output.fileno())
        with contextlib.closing(child):
            code = child.exit_code(limits.seconds)
            return (child.kill(), True) if code is None else (code, False)

    def close(self) -> None:
        """End the server and every compilation."""
        super().close()
        self._home.cleanup()


_SHARED = Shared(CompileServer)


def run(module: str, place: Path, variables: Mapping[str, str], limits: CompileLimits) -> tuple[int, bool]:
    """`CompileServer.run` on this process's server. From any thread.

    Raises OSError where the servers of two tries die.
    """
    with QUIET.resting():
        return _SHARED.use(lambda server: server.run(module, place, variables, limits))


def start() -> None:
    """Start this process's server without waiting for it, where something will soon be compiled."""
    _SHARED.get()


def settle() -> None:
    """Wait until a server that starts has started: on a CPU its imports would take cores from what is timed."""
    if (server := _SHARED.running()) is not None:
        with contextlib.suppress(ForkServerDied):  # who compiles next finds out
            server.ready()


def close() -> None:
    """End this process's server, if there is one."""
    _SHARED.drop(None)


atexit.register(close)
