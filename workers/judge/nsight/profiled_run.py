"""Run a few calls of one candidate under `ncu`.

`python -m warpsmith.workers.judge.nsight.profiled_run REQUEST` takes the device, has one kernel of ours profiled (so
that the profiler has all that it loads before this process is confined, and its answer begins with a launch that is
known), enters the sandbox, and only then reads the candidate. Only the calls between `cudaProfilerStart` and
`cudaProfilerStop` are profiled. The result decides nothing.
"""

from __future__ import annotations

import json
import os
import secrets
import signal
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from warpsmith.kernels_db.job.languages import built_by
from warpsmith.workers.judge.machine import process_control
from warpsmith.workers.judge.machine.garbage import imports_kept
from warpsmith.workers.judge.sandbox import sandbox
from warpsmith.workers.judge.sandbox.sandbox import Ability, Confinement, Profile

CALLS = 2
"""Profiled calls, after one that tunes and loads. A sanitizer, which looks at every call, has that one alone."""


def layers(reached: Confinement, *, administrator: bool) -> Confinement:
    """Return the confinement of this process, where `reached` is that of a runner.

    The memory of this process is not watched, and the counters may demand a capability.
    """
    absent = {"memory watch", "sealed buffers", *(["no capabilities"] if administrator else [])}
    return Confinement(tuple(layer for layer in reached.layers if layer not in absent))


@contextmanager
def _profiled(device: str) -> Iterator[None]:
    """Profile the launches inside the block, until the device is idle."""
    import torch  # noqa: PLC0415 - after this process has a directory of its own

    if device == "cpu":
        yield
        return
    torch.cuda.synchronize()
    torch.cuda.cudart().cudaProfilerStart()  # type: ignore[no-untyped-call]
    yield
    torch.cuda.synchronize()
    torch.cuda.cudart().cudaProfilerStop()  # type: ignore[no-untyped-call]


def _own_kernel(device: str) -> None:
    import torch  # noqa: PLC0415 - as above

    torch.empty(1 << 16, device=device).fill_(1.0)  # one launch: the answer's first


class _Calls:
    """The arguments of the calls.

    Tensors that are allocated before this process is confined and filled after.
    """

    def __init__(self, request: dict[str, Any]) -> None:
        import torch  # noqa: PLC0415 - as above

        from warpsmith.workers.judge.machine import buffers  # noqa: PLC0415 - import torch
        from warpsmith.workers.judge.values import workload_specs  # noqa: PLC0415 - import torch

        self.request = request
        self.device = torch.device(request["device"])
        self.inputs = workload_specs.input_specs(request["workload"])
        self.outputs = workload_specs.result_specs(request["workload"])
        self.slot: buffers.Slot | None = None

    def confine(self) -> Confinement:
        """Prove the profiler, take the memory, then bind this process. Raises OSError."""
        from warpsmith.workers.judge.machine import buffers  # noqa: PLC0415 - as above

        with _profiled(self.request["device"]):
            _own_kernel(self.request["device"])
        self.slot = buffers.allocate([*self.inputs, *self.outputs], 1, self.device)[0]
        process_control.hide_memory()
        reached = sandbox.confine(Profile.of(self.request["profile"]), Ability(**self.request["ability"]))
        return layers(reached, administrator=self.request["administrator"])

    def arguments(self, directory: Path) -> list[Any]:
        """Inputs, under a seed of this process's own, and outputs."""
        import torch  # noqa: PLC0415 - as above

        from warpsmith.workers.judge.machine import buffers  # noqa: PLC0415 - as above
        from warpsmith.workers.judge.runner import loading  # noqa: PLC0415 - as above
        from warpsmith.workers.judge.values import inputs  # noqa: PLC0415 - as above

        def make(source: str, spec: buffers.TensorSpec, seed: int) -> torch.Tensor:
            path = directory / f"generator_{seed}.py"
            path.write_text(source, encoding="utf-8")
            generator = torch.Generator().manual_seed(seed)
            made: torch.Tensor = loading.import_file(str(path)).make(list(spec.shape or ()), spec.dtype, generator)
            return made

        assert self.slot is not None
        source = inputs.InputSource(self.request["workload"]["inputs"], secrets.randbits(62), make, self.device)
        buffers.fill(self.slot, self.inputs, len(self.outputs), source.draw())
        specs = [*self.inputs, *self.outputs]
        view = self._apart if self.request["sanitized"] else self.slot.tensor
        return [spec.value if spec.shape is None else view(at) for at, spec in enumerate(specs)]

    def _apart(self, at: int) -> Any:
        """Return a tensor of the slot in memory of its own, whose ends a sanitizer sees; outputs are left unset."""
        import torch  # noqa: PLC0415 - as above

        assert self.slot is not None
        there = self.slot.tensor(at)
        if there.numel() == 0:
            return there
        flat = self.slot.storage(at).view(there.dtype)
        own = torch.empty_like(flat)
        if at < len(self.inputs):
            own.copy_(flat)
        return own.as_strided(there.shape, there.stride())


def main() -> int:
    """Do what the request says; return the exit status.

    It is 1, with a line on standard error, where this process cannot be confined.
    """
    request = json.loads(Path(sys.argv[1]).read_text())
    signal.alarm(request["limit_s"])
    own = Path(request["directory"])
    os.chdir(own)  # Triton's cache is written here
    os.environ.update({"HOME": str(own), "TMPDIR": str(own)})  # ncu's own are none of the candidate's
    with imports_kept():
        from warpsmith.workers.judge.runner.runner_process import Runner  # noqa: PLC0415 - imports torch's users

    calls = _Calls(request)
    here = Runner(socket.socketpair()[0], calls.confine)
    answer = here.enter({"device": request["device"]})
    if "refused" in answer:
        sys.stderr.write(f"the profiled process could not be confined: {answer['refused']}\n")
        return 1
    here.load({name: request[name] for name in ("mode", "path", "math", "language")})
    if request["sanitized"] and request["device"] == "cuda" and request["language"] in built_by("triton"):
        from warpsmith.workers.judge.runner import triton_runtime  # noqa: PLC0415 - only a GPU's processes launch

        triton_runtime.tune_by_one_call()
    run, arguments = here.run, calls.arguments(own)
    assert run is not None
    run(*arguments)
    with _profiled(request["device"]):
        for _ in range(request["calls"]):
            run(*arguments)
    return 0


if __name__ == "__main__":
    sys.exit(main())
