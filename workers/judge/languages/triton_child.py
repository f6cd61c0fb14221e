"""`python -m workers.judge.languages.triton_child REQUEST ANSWER`: imports one candidate and compiles what its `run`
launches.

This process runs the candidate, so nothing that it answers decides a verdict other than "does not compile".
"""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
import time
import warnings
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from triton.backends.compiler import GPUTarget
from triton.backends.nvidia.compiler import get_ptxas, sm_arch_from_capability
from triton.compiler.errors import CompilationError, CompileTimeAssertionFailure
from triton.runtime import driver
from triton.runtime.autotuner import Autotuner
from triton.runtime.errors import PTXASError
from triton.runtime.jit import JITFunction

from kernels_db.job import ResolvedInput, ResolvedOutput, ResolvedWorkload
from workers.judge.languages.launches import described
from workers.judge.languages.prepared import KernelReport, ptxas_reports

_MULTIPROCESSORS = {80: 108, 86: 84, 89: 142, 90: 132, 100: 148, 103: 160, 120: 188}


_SHARED_BYTES = {80: 166912, 86: 101376, 89: 101376, 90: 232448, 100: 232448, 103: 232448, 120: 101376}
"""Shared memory that one block can be given. Source: CUDA C++ Programming Guide, compute capabilities."""


class KernelError(Exception):
    """A kernel that does not compile. `log` is the compiler's message; `configuration`: an autotuned kernel skips this
    one.
    """

    def __init__(self, kernel: str, log: str, *, configuration: bool = False) -> None:
        lines = [line.strip() for line in log.splitlines() if line.strip()]
        super().__init__(f"kernel {kernel!r} does not compile: {lines[-1] if lines else 'no message'}")
        self.log = log
        self.configuration = configuration


class NoGpu:
    """Triton's view of the device: the architecture to compile for, and nothing to run on."""

    def __init__(self, target: Any) -> None:
        self._target = target

    def get_current_target(self) -> Any:
        """The architecture."""
        return self._target

    def get_current_device(self) -> int:
        """Always the same one."""
        return 0

    def get_current_stream(self, device: int) -> int:
        """No stream is ever used."""
        return device


class Compiler:
    """Takes the place of launching: each launch compiles its kernel, is noted, and ends."""

    def __init__(self, capability: int) -> None:
        self.capability = capability
        self.reports: dict[str, KernelReport] = {}

    def install(self) -> None:
        """Replace the launch of every kernel in this process."""
        driver.set_active(NoGpu(GPUTarget("cuda", self.capability, 32)))
        launch = JITFunction.run

        def compiled(kernel: Any, *args: Any, grid: Any, warmup: bool, **kwargs: Any) -> None:
            self.note(kernel, args, kwargs, lambda: launch(kernel, *args, grid=grid, warmup=True, **kwargs))

        JITFunction.run = compiled
        Autotuner.run = _tune

    def note(self, kernel: Any, args: tuple[Any, ...], kwargs: dict[str, Any], build: Any) -> None:
        """Compile one launch and keep what it uses."""
        said = described(kernel.fn, kernel.arg_names, args, kwargs)
        try:
            built = build()
        except CompilationError as error:
            tried = isinstance(error, CompileTimeAssertionFailure)
            raise KernelError(said["kernel"], str(error), configuration=tried) from error
        except PTXASError as error:
            raise KernelError(said["kernel"], str(error), configuration=True) from error
        shared, most = int(built.metadata.shared), _SHARED_BYTES.get(self.capability, 1 << 30)
        if shared > most:
            message = f"it needs {shared} bytes of shared memory, and a block has {most}"
            raise KernelError(said["kernel"], message, configuration=True)
        if built.hash not in self.reports:
            self.reports[built.hash] = {
                **self.usage(built),
                "signature": ", ".join(f"{name}: {kind}" for name, kind in said["arguments"].items()),
                "config": {**said["constexprs"], **said["options"]},
            }

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


def _tune(tuner: Any, *args: Any, **kwargs: Any) -> Any:
    """The first configuration that fits, as Triton's tuner skips those that do not; the others are for the GPU to
    compare.
    """
    failure = KernelError(tuner.base_fn.__name__, "it has no configuration")
    for config in tuner.configs:
        try:
            return tuner.fn.run(*args, **kwargs, **config.all_kwargs())
        except KernelError as error:
            failure = error
            if not error.configuration:
                break
    raise failure


def tensor(entry: ResolvedInput | ResolvedOutput, strides: list[int] | None) -> Any:
    """A tensor on the GPU without storage."""
    dtype = getattr(torch, entry["dtype"])
    shape = entry["shape"] or []
    if strides is None:
        return torch.empty(shape, dtype=dtype, device="cuda")
    return torch.empty_strided(shape, strides, dtype=dtype, device="cuda")


def arguments(workload: ResolvedWorkload) -> list[Any]:
    """What `run` is called with: inputs, then outputs."""
    inputs = [
        entry["value"] if entry["shape"] is None else tensor(entry, entry["strides"]) for entry in workload["inputs"]
    ]
    return inputs + [tensor(entry, None) for entry in workload["outputs"]]


def load(source: str) -> Any:
    """The candidate's module, from a file, because Triton reads its kernels' text."""
    path = Path("candidate.py").resolve()
    path.write_text(source)
    specification = importlib.util.spec_from_file_location("candidate", path)
    assert specification is not None
    assert specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


def compile_candidate(request: dict[str, Any]) -> dict[str, Any]:
    """The answer to a request: {"seconds", "log", "kernels"} or {"error", "log"}."""
    capability = int(request["arch"])
    compiler = Compiler(capability)
    compiler.install()
    properties = SimpleNamespace(
        multi_processor_count=_MULTIPROCESSORS.get(capability, 132), major=capability // 10, minor=capability % 10
    )
    setattr(torch.cuda, "get_device_properties", lambda device=None: properties)  # noqa: B010  another type on purpose
    log: list[str] = []
    start = time.perf_counter()
    try:
        module = load(request["source"])
    except Exception as error:  # noqa: BLE001  whatever the candidate raises is its own failure
        return {"error": f"the candidate cannot be imported: {type(error).__name__}: {error}", "log": ""}
    for workload in request["workloads"]:
        try:
            with FakeTensorMode(allow_non_fake_inputs=True):
                module.run(*arguments(workload))
        except KernelError as error:
            return {"error": str(error), "log": error.log}
        except Exception as error:  # noqa: BLE001  host code may need values; the screen will tell
            said = f"{type(error).__name__}: {error}"
            log.append(f"workload {workload['id']}: run ends early on tensors without values: {said}")
    seconds = time.perf_counter() - start
    return {"seconds": seconds, "log": "\n".join(log), "kernels": list(compiler.reports.values())}


def main() -> None:
    """Answer the request in the file that is named first, in the file that is named second."""
    warnings.simplefilter("ignore")
    request = json.loads(Path(sys.argv[1]).read_text())
    Path(sys.argv[2]).write_text(json.dumps(compile_candidate(request), default=str))


if __name__ == "__main__":
    main()
