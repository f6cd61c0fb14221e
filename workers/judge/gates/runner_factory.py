"""Start the runners of a job.

They are the candidate, the reference in its modes, the memory probe and a spec's generator.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import cast

import torch

from warpsmith.kernels_db.job.documents import Job
from warpsmith.kernels_db.job.protocol_number import PROTOCOL
from warpsmith.workers.judge.gates import footprint
from warpsmith.workers.judge.gates.candidates import build
from warpsmith.workers.judge.machine.device import Device
from warpsmith.workers.judge.reference import expert_packages
from warpsmith.workers.judge.reference.baseline_store import BaselineStore
from warpsmith.workers.judge.reference.baselines import OpRunners
from warpsmith.workers.judge.runner import compiler_cache
from warpsmith.workers.judge.runner.fork_server_client import ForkServer
from warpsmith.workers.judge.runner.limits import Mode
from warpsmith.workers.judge.runner.runner_handle import RunnerHandle
from warpsmith.workers.judge.sandbox import sandbox
from warpsmith.workers.judge.sandbox.sandbox import COMPILING, Confinement

PROBE = "probe"
CPU = torch.device("cpu")


class RunnerFactory:
    """Starts runners, each with a fresh directory below `scratch`."""

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
        self,
        mode: Mode,
        source: str,
        job: Job,
        *,
        environment: dict[str, str],
        allowed: int,
        name: str | None = None,
        packages: Sequence[str] = (),
        wait: bool = True,
    ) -> RunnerHandle:
        """Start a runner with `source` loaded, which may use `allowed` bytes besides its buffers.

        wait: without, it is only begun (`RunnerHandle`).
        Raises RunnerFault, which names the runner by `name`, by default its mode; ForkServerDied.
        """
        return RunnerHandle(
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
            packages=packages,
            wait=wait,
        )

    def op(self, job: Job, allowed: int) -> OpRunners:
        """Return the runners of a job's reference, each started when it is first needed."""
        start = partial(self._start_reference, job, allowed)
        op, standings = job["op"], self._standings.of(job["op"])
        experts = frozenset(op.get("experts", {}))
        return OpRunners(start, job["limits"]["call_s"], self.device, standings, op["math"], op["reference"], experts)

    def _start_reference(self, job: Job, allowed: int, name: str) -> RunnerHandle:
        """Start the reference in a mode, or the expert of a name; what compiles has its own cache directory."""
        if (expert := job["op"].get("experts", {}).get(name)) is not None:
            kept = compiler_cache.expert_variables(compiler_cache.expert_directory(expert, self._cache / "experts"))
            places = expert_packages.places(expert)
            return self.start("expert", expert, job, environment=kept, allowed=allowed, name=name, packages=places)
        mode = cast("Mode", name)
        source, environment = job["op"]["reference"], {}
        if mode in COMPILING:
            compiled = partial(self._start_compiled, job, allowed)
            environment = compiler_cache.variables(
                compiler_cache.directory_for(source, self._cache / "inductor", compiled)
            )
        return self.start(mode, source, job, environment=environment, allowed=allowed)

    def _start_compiled(self, job: Job, allowed: int, source: str, variables: dict[str, str]) -> RunnerHandle:
        """Any source, compiled with these variables."""
        return self.start("compile", source, job, environment=variables, allowed=allowed)

    def confinement(self, job: Job) -> Confinement:
        """Return the weakest confinement of a job's runners here. Raises ForkServerDied."""
        experts = job["op"].get("experts", {})
        modes = ["float64", *("expert" if name in experts else name for name in job["op"]["baselines"])]
        reached = [self._expected(mode, None) for mode in modes]
        if job["candidate"]:
            reached.append(self.candidate_confinement(job["candidate"]["language"]))
        return min(reached, key=Confinement.rank)

    def candidate_confinement(self, language: str) -> Confinement:
        """Return the confinement of a candidate in `language` here. Raises ForkServerDied."""
        return self._expected("candidate", language)

    def _expected(self, mode: str, language: str | None) -> Confinement:
        chosen = sandbox.profile(mode, self.device.type, language, Path(), {}, self._cores)
        return sandbox.expected(chosen, self._server.ready())

    def probe(self, source: str, language: str, job: Job) -> RunnerHandle:
        """Start a runner with a kernel of ours, built and started like a candidate's."""
        environment = build(source, language, job, self._cache)
        return self.start(
            "candidate", source, job, environment=environment, allowed=footprint.LEAST_FOR_RUNNERS, name=PROBE
        )

    def generator(self, job: Job, allowed: int, source: str) -> RunnerHandle:
        """Start a runner with a spec's own generator. Raises RunnerFault, ForkServerDied."""
        return self.start("generate", source, job, environment={}, allowed=allowed)
