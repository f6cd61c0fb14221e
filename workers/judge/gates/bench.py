"""What the jobs of one device share: runner factory, peaks, warm references and the lease."""

from __future__ import annotations

from contextlib import AbstractContextManager
from pathlib import Path

from warpsmith.kernels_db.runtime import plan_build
from warpsmith.workers.judge.clock.physics import Peaks
from warpsmith.workers.judge.gates.runner_factory import RunnerFactory
from warpsmith.workers.judge.machine.clock_lease import ClockLease
from warpsmith.workers.judge.machine.device import Device, Gpu
from warpsmith.workers.judge.nsight import profiler
from warpsmith.workers.judge.reference.warm_ops import WarmOps
from warpsmith.workers.judge.runner.fork_server_client import ForkServer
from warpsmith.workers.judge.sanitizers import sanitizer

_COMPILERS = ("torch.fx.experimental.symbolic_shapes", "torch._dynamo", "torch._inductor.config")
"""Modules that torch.compile imports at its first call, imported once for all baselines.

Not Inductor's `compile_fx`, which takes as long again: it starts CUDA's own thread, and a fork beside a thread copies
locks that no thread of the child holds.
"""


class Bench:
    """The judge's place of work on one device. Close it to end every process under it."""

    def __init__(self, device: Device, cache: Path, scratch: Path, server: ForkServer, cores: int) -> None:
        """`scratch`: where `server` runs, which has not been told what to preload."""
        self.device = device
        # A GPU host's runners never interpret, so Triton, which reads that choice when it is imported, can be there
        # before the fork, and with it what compiled baselines import.
        if isinstance(device, Gpu):
            built = cache / "triton"
            built.mkdir(mode=0o700, exist_ok=True)
            server.preload(("cuda.core", *_COMPILERS), (built, device.capability))
        else:
            server.preload()
        self.server = server
        self.factory = RunnerFactory(server, scratch, cache, cores, device)
        self.peaks = Peaks(cache, device)
        self.warm = WarmOps()
        self._cache = cache
        self._scratch = scratch
        self._cores = cores

    def lease(self) -> AbstractContextManager[None]:
        """Hold the device's clock: one judge times at a time."""
        return ClockLease(self._cache, self.device.lease).timing()

    def plan_extension(self) -> Path:
        """Build what replays launch plans, once. Raises CompileError: no compiler, or no Python.h."""
        return plan_build.build(self._cache / "plans").path

    def profiler(self) -> profiler.Profiler | None:
        """Nsight Compute on this host; None without it. Raises ForkServerDied."""
        return profiler.here(self._scratch, self._cores, self.server.ready())

    def sanitizer(self) -> sanitizer.Sanitizer | None:
        """compute-sanitizer on this host; None without it. Raises ForkServerDied."""
        return sanitizer.here(self._scratch, self._cores, self.server.ready())

    def close(self) -> None:
        """End every process."""
        self.warm.close()
        self.server.close()
