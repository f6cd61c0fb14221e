"""Starting the runners of a job: the candidate, the reference in its modes, the memory probe, a spec's generator."""

from __future__ import annotations

import itertools
from pathlib import Path

import torch

from warpsmith.kernels_db.job.documents import Job
from warpsmith.kernels_db.runtime.cache import CACHE_VARIABLE
from warpsmith.workers.judge import languages
from warpsmith.workers.judge.gates import footprint
from warpsmith.workers.judge.gates.candidates import kernel_cache
from warpsmith.workers.judge.gates.verdict import PROTOCOL
from warpsmith.workers.judge.machine.buffers import TensorSpec
from warpsmith.workers.judge.machine.device import Device
from warpsmith.workers.judge.reference.baseline_store import BaselineStore
from warpsmith.workers.judge.reference.baselines import OpRunners, ReferenceFault
from warpsmith.workers.judge.runner import compiler_cache
from warpsmith.workers.judge.runner.faults import ContenderFault
from warpsmith.workers.judge.runner.fork_server_client import ForkServer
from warpsmith.workers.judge.runner.runner_handle import Contender, Mode
from warpsmith.workers.judge.sandbox import sandbox
from warpsmith.workers.judge.sandbox.sandbox import Confinement

PROBE = "probe"
CPU = torch.device("cpu")


class Starter:
    """Starts contenders, each with a fresh directory below `scratch`."""

    def __init__(self, server: ForkServer, scratch: Path, cache: Path, cores: int, device: Device) -> None:
        """`device`: where candidates and references run."""
        self._server = server
        self.device = device.torch
        self._standings = BaselineStore(cache / "baselines", device.identity, device.versions(), protocol=PROTOCOL)
        self._scratch = scratch
        self._cache = cache
        self._cores = cores
        self._numbers = itertools.count()

    def start(
        self, mode: Mode, source: str, job: Job, *, environment: dict[str, str], allowed: int, name: str | None = None
    ) -> Contender:
        """A runner with `source` loaded, which may use `allowed` bytes besides its buffers.

        Raises ContenderFault, which names the contender by `name`, by default its mode; ForkServerDied.
        """
        return Contender(
            self._server,
            name=name or mode,
            mode=mode,
            source=source,
            arithmetic=job["op"]["math"],
            directory=self._scratch / f"{mode}-{next(self._numbers)}",
            environment=environment,
            memory_bytes=allowed,
            cores=self._cores,
            device=CPU if mode == "generate" else self.device,
            language=job["candidate"]["language"] if mode == "candidate" and job["candidate"] else None,
        )

    def op(self, job: Job, allowed: int) -> OpRunners:
        """The runners of a job's reference, each started when it is first needed."""
        reference = job["op"]["reference"]

        def compiled(source: str, variables: dict[str, str]) -> Contender:
            return self.start("compile", source, job, environment=variables, allowed=allowed)

        def start(mode: Mode) -> Contender:
            environment = {}
            if mode in ("compile", "max_autotune"):
                directory = compiler_cache.directory_for(reference, self._cache / "inductor", compiled)
                environment = compiler_cache.variables(directory)
            return self.start(mode, reference, job, environment=environment, allowed=allowed)

        return OpRunners(start, job["limits"]["call_s"], self.device, self._standings.of(job["op"]), job["op"]["math"])

    def confinement(self, job: Job) -> Confinement:
        """The least that any of a job's runners will reach here. Raises ForkServerDied."""
        modes = ["float64", *job["op"]["baselines"]]
        reached = [self._expected(mode, None) for mode in modes]
        if job["candidate"]:
            reached.append(self.candidate_confinement(job["candidate"]["language"]))
        return min(reached, key=Confinement.rank)

    def candidate_confinement(self, language: str) -> Confinement:
        """What the runner of a candidate in `language` will reach here. Raises ForkServerDied."""
        return self._expected("candidate", language)

    def _expected(self, mode: str, language: str | None) -> Confinement:
        chosen = sandbox.profile(mode, self.device.type, language, Path(), {}, self._cores)
        return sandbox.expected(chosen, self._server.ready())

    def probe(self, source: str, language: str, job: Job) -> Contender:
        """A runner with a kernel of ours, built and started as a candidate's would be."""
        directory = kernel_cache(self._cache, source)
        limits = languages.CompileLimits(seconds=job["limits"]["compile_s"])
        arch = job["target"].partition(":")[2]
        languages.prepare(source, language, target_arch=arch, cache_dir=directory, limits=limits, workloads=[])
        environment = {CACHE_VARIABLE: str(directory)}
        return self.start(
            "candidate", source, job, environment=environment, allowed=footprint.LEAST_FOR_RUNNERS, name=PROBE
        )

    def generate(self, job: Job, allowed: int, source: str, spec: TensorSpec, seed: int) -> torch.Tensor:
        """What a spec's own generator makes for one input. Raises ReferenceFault where it is at fault."""
        try:
            contender = self.start("generate", source, job, environment={}, allowed=allowed)
            try:
                contender.bind([], [spec], 1)
                contender.command({"command": "generate", "seed": seed}, job["limits"]["call_s"])
                return contender.slots[0].tensor(0).clone()
            finally:
                contender.close()
        except ContenderFault as fault:
            if fault.external:
                raise
            message = f"the generator of input {spec.name}: {fault}"
            raise ReferenceFault(fault.kind, message, "", **fault.details) from fault
