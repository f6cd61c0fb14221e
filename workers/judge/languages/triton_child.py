"""Compile one candidate's Triton in a process of its own.

`python -m warpsmith.workers.judge.languages.triton_child REQUEST ANSWER` imports the candidate and compiles what its
`run` launches.

This process runs the candidate, so nothing that it answers decides a verdict other than "does not compile".
"""

from __future__ import annotations

import inspect
import json
import re
import subprocess
import sys
import time
import warnings
from pathlib import Path
from typing import Any

from triton.backends.compiler import GPUTarget
from triton.backends.nvidia import driver as nvidia
from triton.backends.nvidia.compiler import get_ptxas, sm_arch_from_capability
from triton.compiler.errors import CompilationError, CompileTimeAssertionFailure
from triton.runtime import driver
from triton.runtime.autotuner import Autotuner
from triton.runtime.errors import PTXASError
from triton.runtime.jit import JITFunction

from warpsmith.kernels_db.runtime.limits import of_architecture
from warpsmith.workers.judge.languages import abstract, cubin
from warpsmith.workers.judge.languages.elf import digests
from warpsmith.workers.judge.languages.prepared import KernelReport, ptxas_reports
from warpsmith.workers.judge.runner.interpreter.launches import described

MOST_CONFIGURATIONS = 64
"""Of one autotuned kernel: each is compiled here, so that none is while a device waits."""
_DEF = re.compile(r"^def\s+(\w+)", re.MULTILINE)
_UNKNOWN = 1 << 30  # bytes of shared memory, where the architecture's limit is not known


class KernelError(abstract.Refused):
    """A kernel that does not compile.

    `log` is the compiler's message; `configuration`: an autotuned kernel skips this configuration.
    """

    def __init__(self, kernel: str, line: int | None, log: str, *, configuration: bool = False) -> None:
        lines = [line.strip() for line in log.splitlines() if line.strip()]
        place = f"line {line}: " if line is not None else ""
        super().__init__(f"{place}kernel {kernel!r} does not compile: {lines[-1] if lines else 'no message'}", log)
        self.configuration = configuration


class NoGpu:
    """Triton's view of the device: the architecture to compile for, and nothing to run on."""

    def __init__(self, target: Any) -> None:
        self._target = target

    def get_current_target(self) -> Any:
        """Return the architecture."""
        return self._target

    def get_current_device(self) -> int:
        """Always the same one."""
        return 0

    def get_current_stream(self, device: int) -> int:
        """Return a stream number; no stream is ever used."""
        return device


class Compiler:
    """Takes the place of launching: each launch compiles its kernel, is noted, and ends."""

    def __init__(self, capability: int, source: str) -> None:
        self.capability = capability
        self.reports: dict[str, KernelReport] = {}
        self.binaries: dict[str, bytes] = {}
        self.launches = 0
        self.workload = ""  # that is tried now
        self.notes: list[str] = []
        self.lines = {name.group(1): source.count("\n", 0, name.start()) + 1 for name in _DEF.finditer(source)}

    def install(self) -> None:
        """Replace the launch of every kernel in this process."""
        driver.set_active(NoGpu(GPUTarget("cuda", self.capability, 32)))
        launch = JITFunction.run

        def compiled(kernel: Any, *args: Any, grid: Any, warmup: bool, **kwargs: Any) -> None:
            self.check_grid(kernel, grid, args, kwargs)
            with abstract.uncounted():
                self.note(kernel, args, kwargs, lambda: launch(kernel, *args, grid=grid, warmup=True, **kwargs))

        JITFunction.run = compiled
        Autotuner.run = _tune

    def check_grid(self, kernel: Any, grid: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Count the launch.

        Raises LaunchRefused unless the grid is one to three ints that a device takes.
        """
        given = grid(_meta(kernel, args, kwargs)) if callable(grid) else grid
        sizes = given if isinstance(given, (tuple, list)) else (given,)
        limits = of_architecture(self.capability)
        most = limits.grid if limits else (_UNKNOWN,) * 3
        ints = 1 <= len(sizes) <= 3 and all(isinstance(size, int) and size >= 0 for size in sizes)
        if not ints or any(size > axis for size, axis in zip(sizes, most, strict=False)):
            raise abstract.LaunchRefused(
                f"launch of {kernel.__name__!r}: found grid {given!r}, expected one to three ints, at most {most}"
            )
        self.launches += all(sizes)

    def note(self, kernel: Any, args: tuple[Any, ...], kwargs: dict[str, Any], build: Any) -> None:
        """Compile one launch and keep what it uses."""
        said = described(kernel.fn, kernel.arg_names, args, kwargs)
        name = said["kernel"]
        try:
            built = build()
        except CompilationError as error:
            tried = isinstance(error, CompileTimeAssertionFailure)
            raise KernelError(name, self.line_of(error), str(error), configuration=tried) from error
        except PTXASError as error:
            raise KernelError(name, self.lines.get(name), str(error), configuration=True) from error
        except (TypeError, KeyError, ValueError, AssertionError) as error:  # its arguments do not fit the kernel
            message = str(error).replace("dynamic_func()", name)
            raise abstract.LaunchRefused(f"launch of {name!r}: {message}") from error
        except Exception as error:  # a pass of the compiler
            raise KernelError(name, self.lines.get(name), f"{type(error).__name__}: {error}") from error
        shared, limits = int(built.metadata.shared), of_architecture(self.capability)
        most = limits.shared if limits else _UNKNOWN
        if shared > most:
            message = (
                f"it needs {shared} bytes of shared memory, and a block has {most}: "
                "expected smaller blocks or fewer stages (num_stages)"
            )
            raise KernelError(name, self.lines.get(name), message, configuration=True)
        if refused := cubin.refusal(built.asm["cubin"]):  # inline assembly can declare what Triton cannot
            raise KernelError(name, self.lines.get(name), refused)
        if built.hash not in self.reports:
            self.notes += build_launcher(built)
            self.binaries[built.hash] = built.asm["cubin"]
            self.reports[built.hash] = {
                **self.usage(built),
                "signature": ", ".join(f"{name}: {kind}" for name, kind in said["arguments"].items()),
                "config": {**said["constexprs"], **said["options"]},
                "workload": self.workload,
            }

    def line_of(self, error: BaseException) -> int | None:
        """Return the candidate's line of the innermost error.

        Triton counts from the kernel's `def`.
        """
        while isinstance(error.__cause__, CompilationError):
            error = error.__cause__
        head = re.match(r"\s*def\s+(\w+)", str(getattr(error, "src", "")))
        place = getattr(getattr(error, "node", None), "lineno", None)
        first = self.lines.get(head[1]) if head else None
        return None if first is None else first + (place or 1) - 1

    def usage(self, built: Any) -> KernelReport:
        """Registers and spills by ptxas, shared memory by Triton's metadata."""
        ptx = Path("kernel.ptx")
        ptx.write_text(built.asm["ptx"])
        arch = sm_arch_from_capability(self.capability)
        command = [get_ptxas(self.capability).path, "-v", f"--gpu-name={arch}", str(ptx), "-o", "kernel.cubin"]
        said = subprocess.run(command, capture_output=True, text=True, check=False)
        reports = ptxas_reports(said.stderr + said.stdout)
        found: KernelReport = reports[0] if reports else {"name": "", "registers": None, "spills": None, "shared": 0}
        return {**found, "name": built.metadata.name, "shared": int(built.metadata.shared)}


def build_launcher(built: Any) -> list[str]:
    """Build the launcher in C that Triton up to 3.6 has for each signature.

    It is built here, so that no compiler runs beside a device; where that does not work, the runner builds it, and the
    note says so. Without libcuda there is no device to run it.
    """
    if not hasattr(nvidia, "make_launcher"):
        return []
    try:
        nvidia.library_dirs()
    except (AssertionError, OSError, subprocess.CalledProcessError):
        return []
    try:
        nvidia.CudaLauncher(built.src, built.metadata)
    except (ImportError, OSError, RuntimeError, subprocess.CalledProcessError) as error:
        return [f"the launcher of {built.metadata.name!r} is left to the runner: {type(error).__name__}: {error}"]
    return []


def _meta(kernel: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    """Return the argument of a grid function: the kernel's arguments by name, with defaults."""
    defaults = {
        name: parameter.default
        for name, parameter in kernel.signature.parameters.items()
        if parameter.default is not inspect.Parameter.empty
    }
    return {**defaults, **dict(zip(kernel.arg_names, args, strict=False)), **kwargs}


def _tune(tuner: Any, *args: Any, **kwargs: Any) -> Any:
    """Compile every configuration.

    On a device Triton's tuner compares those that fit and skips the others.
    """
    name = tuner.base_fn.__name__
    if len(tuner.configs) > MOST_CONFIGURATIONS:
        raise abstract.LaunchRefused(
            f"kernel {name!r}: found {len(tuner.configs)} configurations, expected at most {MOST_CONFIGURATIONS}"
        )
    failure: KernelError | None = None
    fitting = 0
    for config in tuner.configs:
        both = ", ".join(sorted(kwargs.keys() & config.kwargs.keys()))
        if both:
            raise abstract.LaunchRefused(
                f"launch of {name!r}: {both} is given here and by a configuration: leave it out"
            )
        try:
            tuner.fn.run(*args, **kwargs, **config.all_kwargs())
            fitting += 1
        except KernelError as error:
            failure = error
            if not error.configuration:
                raise
    if fitting == 0 and failure is not None:
        raise failure


def compile_candidate(request: dict[str, Any]) -> dict[str, Any]:
    """Answer a request: {"seconds", "log", "kernels", "binaries"} or {"error", "log"}."""
    capability = int(request["arch"])
    compiler = Compiler(capability, request["source"])
    compiler.install()
    abstract.pretend(capability)
    start = time.perf_counter()
    try:
        module = abstract.load(request["source"])
        notes = abstract.trials(module, request, compiler, lambda: compiler.launches)
    except abstract.Refused as error:
        return abstract.refusal(error, compiler.workload)
    seconds = time.perf_counter() - start
    log = "\n".join(dict.fromkeys(note for note in (*notes, *compiler.notes) if note))
    return {
        "seconds": seconds,
        "log": log,
        "kernels": list(compiler.reports.values()),
        "binaries": digests(compiler.binaries.values()),
    }


def main() -> None:
    """Answer the request in the file that is named first, in the file that is named second."""
    warnings.simplefilter("ignore")
    request = json.loads(Path(sys.argv[1]).read_text())
    Path(sys.argv[2]).write_text(json.dumps(compile_candidate(request), default=str))


if __name__ == "__main__":
    main()
