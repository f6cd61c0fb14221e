"""Compile one candidate's TileLang in a process of its own.

`python -m warpsmith.workers.judge.languages.tilelang_child REQUEST ANSWER` imports the candidate and compiles what its
`run` calls, for the arguments of each workload, as `cutedsl_child` does.

This process runs the candidate, so nothing that it answers decides a verdict other than "does not compile".
"""

from __future__ import annotations

import json
import sys
import warnings
from pathlib import Path

from warpsmith.kernels_db.runtime import cutedsl, tilelang, tilelang_build
from warpsmith.kernels_db.runtime.cutedsl_build import Argument, Compiled
from warpsmith.kernels_db.runtime.tilelang_host import TensorMap
from warpsmith.workers.judge.languages import cubin, cutedsl_child
from warpsmith.workers.judge.machine.cubin_symbols import own_variables


class Compiler(cutedsl_child.Compiler):
    """Takes the place of calling TileLang's functions."""

    def built(self, function: cutedsl.Function, facts: tuple[Argument, ...]) -> Compiled:
        """Build a function, with maps that no driver has encoded: there is none here."""
        made = tilelang_build.build(function.function, facts, self.arch)
        return Compiled(made.build, tuple(tilelang.host_launch(one, _blank) for one in made.launches))

    def import_package(self) -> None:
        """Import the compiler. Raises HostError."""
        tilelang_build.package()

    def refusal(self, code: bytes) -> str | None:
        """Say what a cubin has and may not: no variables but its headers' constants."""
        if own := own_variables(code):
            return f"the compiled kernel has the device variable {own[0]!r}, expected none"
        return cubin.refusal(code)

    def short(self, kernel: str) -> str:
        """Return the name of a kernel, which is its function's and `_kernel`."""
        return kernel[:80]


def _blank(one: TensorMap) -> bytes:
    return bytes(128)


def main() -> None:
    """Answer the request in the file that is named first, in the file that is named second."""
    warnings.simplefilter("ignore")
    request = json.loads(Path(sys.argv[1]).read_text())
    Path(sys.argv[2]).write_text(json.dumps(cutedsl_child.compile_candidate(request, Compiler)))


if __name__ == "__main__":
    main()
