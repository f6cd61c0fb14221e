"""Compile one candidate's CuTe DSL in a process of its own.

`python -m warpsmith.workers.judge.languages.cutedsl_child REQUEST ANSWER` imports the candidate and compiles what its
`run` calls, for the arguments of each workload.

This process runs the candidate, so nothing that it answers decides a verdict other than "does not compile".
"""

from __future__ import annotations

import dataclasses
import json
import re
import sys
import time
import warnings
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from warpsmith.kernels_db.job.languages import CUTE_KERNEL
from warpsmith.kernels_db.runtime import CompileError, HostError, cutedsl, cutedsl_build
from warpsmith.kernels_db.runtime.cutedsl_build import Argument, TensorFacts
from warpsmith.kernels_db.runtime.cutedsl_host import HostLaunch
from warpsmith.kernels_db.runtime.limits import Launch, Usage, of_architecture, problem
from warpsmith.workers.judge.languages import abstract, cubin
from warpsmith.workers.judge.languages.elf import digests
from warpsmith.workers.judge.languages.prepared import KernelReport


class Compiler:
    """Takes the place of calling: each call compiles its function, is noted, and ends."""

    def __init__(self, arch: str, names: Iterable[str]) -> None:
        self.arch = arch
        self.limits = of_architecture(int(re.sub(r"\D", "", arch)))
        self.names = sorted(names, key=len, reverse=True)
        self.workload = ""  # that is tried now
        self.reports: dict[tuple[str, tuple[Argument, ...]], KernelReport] = {}
        self.binaries: dict[Path, bytes] = {}
        self.seen: dict[tuple[str, Launch], int] = {}
        self.first: dict[tuple[str, Launch], str] = {}
        self.host: HostError | None = None

    @property
    def count(self) -> int:
        """Launches so far."""
        return sum(self.seen.values())

    def install(self) -> None:
        """Replace the call of every function in this process."""

        def called(function: cutedsl.Function, *given: Any) -> None:
            try:
                facts = function.facts(given)
            except TypeError as error:
                raise abstract.LaunchRefused(str(error)) from error
            with abstract.uncounted():
                self.compile(function, facts)

        cutedsl.Function.__call__ = called  # type: ignore[method-assign, assignment]

    def compile(self, function: cutedsl.Function, facts: tuple[Argument, ...]) -> None:
        """Compile a function for one call and note its launches."""
        try:
            compiled = self.built(function, facts)
        except HostError as error:
            self.host = error
            raise abstract.Refused(error.message, error.log) from error
        except CompileError as error:
            raise abstract.Refused(
                f"function {function.name!r} does not compile: {error.message}", error.log
            ) from error
        if not compiled.launches:
            return
        code = compiled.build.path.read_bytes()
        if refused := self.refusal(code):
            raise abstract.Refused(f"function {function.name!r}: {refused}")
        self.binaries[compiled.build.path] = code
        used, declared = cubin.resources(code), cubin.bounds(code)
        for launch in compiled.launches:
            if launch.kernel not in used:
                raise abstract.Refused(f"function {function.name!r} launches {launch.kernel[:100]!r}, which it lacks")
            self.note(launch, used[launch.kernel], declared.get(launch.kernel, cubin.Bounds()), facts)

    def built(self, function: cutedsl.Function, facts: tuple[Argument, ...]) -> cutedsl_build.Compiled:
        """Build a function. TileLang's has a compiler of its own."""
        return cutedsl.build(function.function, facts, self.arch)

    def import_package(self) -> None:
        """Import the compiler. Raises HostError."""
        cutedsl_build.dsl()

    def refusal(self, code: bytes) -> str | None:
        """Say what a cubin has and may not, see `cubin.refusal`."""
        return cubin.refusal(code)

    def note(
        self, launch: HostLaunch, used: cubin.Resources, declared: cubin.Bounds, facts: tuple[Argument, ...]
    ) -> None:
        """Count a launch and keep what its kernel uses. Raises LaunchRefused where the architecture has less."""
        name, asked = self.short(launch.kernel), cutedsl.requested(launch)
        usage = Usage(used.registers, 0, declared.threads, declared.cluster)
        limit = problem(asked, usage, self.limits) if self.limits else None
        if limit is not None:
            raise abstract.LaunchRefused(f"launch of {name!r}: {limit}")
        self.seen[name, asked] = self.seen.get((name, asked), 0) + all(launch.grid)
        self.first.setdefault((name, asked), self.workload)
        self.reports.setdefault(
            (launch.kernel, facts),
            {
                "name": name,
                "registers": used.registers,
                "spills": used.frame,
                "shared": launch.shared,
                "signature": ", ".join(map(_spelled, facts)),
                "workload": self.workload,
            },
        )

    def short(self, kernel: str) -> str:
        """Return the name of a kernel's function: the DSL adds the types of its arguments."""
        plain = kernel.removeprefix(CUTE_KERNEL)
        return next((name for name in self.names if plain.startswith(f"{name}_")), plain[:80])

    def launches(self) -> list[dict[str, Any]]:
        """List each different launch, how often it was seen, and the first workload that made it."""
        return [
            {"kernel": name, **dataclasses.asdict(asked), "count": count, "workload": self.first[name, asked]}
            for (name, asked), count in self.seen.items()
        ]


def _spelled(one: Argument) -> str:
    if not isinstance(one, TensorFacts):
        return repr(one)
    return f"{one.dtype}{list(one.shape)}" + ("" if one.alignment == cutedsl.ALIGNMENT else f" at {one.alignment}")


def compile_candidate(request: dict[str, Any], kind: type[Compiler] = Compiler) -> dict[str, Any]:
    """Answer a request: {"seconds", "log", "kernels", "binaries", "launches"}, or {"error", "log"}.

    It has "host" where nothing can be built here.
    """
    compiler = kind(request["arch"], re.findall(r"^def\s+(\w+)", request["source"], re.MULTILINE))
    compiler.install()
    abstract.pretend(int(re.sub(r"\D", "", request["arch"])))
    start = time.perf_counter()
    try:
        compiler.import_package()  # before the candidate does: where it cannot be imported, no candidate is at fault
    except HostError as error:
        return {"error": error.message, "log": error.log, "host": True}
    try:
        module = abstract.load(request["source"])
        notes = abstract.trials(module, request, compiler, lambda: compiler.count)
    except abstract.Refused as error:
        refused = abstract.refusal(error, compiler.workload)
        return {"error": refused["error"], "log": refused["log"], "host": True} if compiler.host else refused
    return {
        "seconds": time.perf_counter() - start,
        "log": "\n".join(note for note in notes if note),
        "kernels": list(compiler.reports.values()),
        "binaries": digests(compiler.binaries.values()),
        "launches": compiler.launches(),
    }


def main() -> None:
    """Answer the request in the file that is named first, in the file that is named second."""
    warnings.simplefilter("ignore")
    request = json.loads(Path(sys.argv[1]).read_text())
    Path(sys.argv[2]).write_text(json.dumps(compile_candidate(request)))


if __name__ == "__main__":
    main()
