"""Compile one candidate's CUDA in a process of its own.

`python -m warpsmith.workers.judge.languages.cuda_child REQUEST ANSWER` runs NVRTC for its sources, then its `run`
without a device, so that each launch is compared with what its kernel was compiled to and with what the architecture
has.

The second part runs the candidate's Python, so nothing that this process answers decides a verdict other than "does not
compile".
"""

from __future__ import annotations

import dataclasses
import json
import re
import sys
from pathlib import Path
from typing import Any

from warpsmith.kernels_db.runtime import Build, CompileError, HostError, cuda
from warpsmith.kernels_db.runtime.limits import Launch, Usage, of_architecture, problem
from warpsmith.kernels_db.runtime.tensor_maps import check_tensor_map
from warpsmith.workers.gate.sources import KernelSource
from warpsmith.workers.judge.languages import abstract, cubin
from warpsmith.workers.judge.languages.elf import digests
from warpsmith.workers.judge.languages.prepared import KernelReport, ptxas_reports


class Recorder:
    """Takes the place of the launcher: checks each launch, counts it, and lets it end."""

    def __init__(self, capability: int, usage: dict[str, Usage]) -> None:
        self.limits = of_architecture(capability)
        self.usage = usage
        self.launches: dict[tuple[str, Launch], int] = {}
        self.workload = ""  # that is tried now
        self.first: dict[tuple[str, Launch], str] = {}

    @property
    def count(self) -> int:
        """Launches so far."""
        return sum(self.launches.values())

    def install(self) -> None:
        """Replace the launch of every kernel, and the making of tensor maps, in this process."""

        def launch(
            kernel: cuda.Kernel,
            grid: cuda.Extent,
            block: cuda.Extent,
            *given: Any,
            shared_bytes: int = 0,
            cluster: cuda.Extent | None = None,
            cooperative: bool = False,
        ) -> None:
            try:
                kernel.values(given)
                asked = cuda.requested(kernel.name, grid, block, shared_bytes, cluster, cooperative)
            except (TypeError, ValueError, OverflowError) as error:
                raise abstract.LaunchRefused(str(error)) from error
            self.note(kernel.name, asked)

        def tensor_map(
            tensor: Any, box: Any, *, swizzle: int = 0, element_strides: Any = None, l2_promotion: int = 0
        ) -> Any:
            try:
                check_tensor_map(tensor, box, swizzle, l2_promotion)
            except (TypeError, ValueError) as error:
                raise abstract.LaunchRefused(str(error)) from error
            return TensorMapDescriptor()

        cuda.Kernel.launch = launch  # type: ignore[method-assign, assignment]
        cuda.tensor_map = tensor_map

    def note(self, name: str, asked: Launch) -> None:
        """Count a launch. Raises LaunchRefused where the architecture has not what it asks for."""
        limit = problem(asked, self.usage.get(name, Usage()), self.limits) if self.limits else None
        if limit is not None:
            raise abstract.LaunchRefused(f"launch of {name!r}: {limit}")
        self.launches[name, asked] = self.launches.get((name, asked), 0) + 1
        self.first.setdefault((name, asked), self.workload)

    def reports(self) -> list[dict[str, Any]]:
        """List each different launch, how often it was seen, and the first workload that made it."""
        return [
            {"kernel": name, **dataclasses.asdict(asked), "count": count, "workload": self.first[name, asked]}
            for (name, asked), count in self.launches.items()
        ]


class TensorMapDescriptor:
    """Replaces cuda-core's class of this name, which needs a device."""


def usage(build: Build) -> dict[str, Usage]:
    """Return what the kernels of a build use, and the bounds that they declare."""
    declared = cubin.bounds(build.path.read_bytes())
    return {
        report["name"]: _usage(report, declared.get(report["name"], cubin.Bounds()))
        for report in ptxas_reports(build.log)
    }


def _usage(report: KernelReport, declared: cubin.Bounds) -> Usage:
    return Usage(report["registers"], report["shared"] or 0, declared.threads, declared.cluster)


def compile_candidate(request: dict[str, Any]) -> dict[str, Any]:
    """Answer a request.

    The answer is {"builds", "binaries", "launches", "log"} or {"error", "log"}; it has "host" where nothing can be
    built here.
    """
    builds: list[Build] = []
    for fields in request["sources"]:
        entry = KernelSource(**fields)
        try:
            builds.append(built := cuda.build(entry.source, request["arch"], entry.flags))
            if refused := cubin.refusal(built.path.read_bytes()):
                return {"error": entry.located(refused, request["arch"]), "log": built.log}
        except HostError as error:
            return {"error": error.message, "log": error.log, "host": True}
        except CompileError as error:
            return {"error": entry.located(error.message, request["arch"]), "log": error.log}
    binaries = digests(build.path.read_bytes() for build in builds)
    used = {name: found for build in builds for name, found in usage(build).items()}
    capability = int(re.sub(r"\D", "", request["arch"]))
    recorder = Recorder(capability, used)
    notes: list[str] = []
    if request["workloads"]:
        recorder.install()
        abstract.pretend(capability)
        try:
            module = abstract.load(request["candidate"])
            notes = abstract.trials(module, request, recorder, lambda: recorder.count)
        except abstract.Refused as error:
            return abstract.refusal(error, recorder.workload)
    return {
        "builds": [{**dataclasses.asdict(build), "path": str(build.path)} for build in builds],
        "binaries": binaries,
        "launches": recorder.reports(),
        "log": "\n".join(note for note in notes if note),
    }


def main() -> None:
    """Answer the request in the file that is named first, in the file that is named second."""
    request = json.loads(Path(sys.argv[1]).read_text())
    Path(sys.argv[2]).write_text(json.dumps(compile_candidate(request)))


if __name__ == "__main__":
    main()
