"""A source cannot tell a build with sanitizers from the real one: what the preprocessor shows is the same."""

from __future__ import annotations

import subprocess

import pytest

from warpsmith.kernels_db.runtime import cpp
from warpsmith.workers.gate.csource import source_problems
from warpsmith.workers.gate.sources import KernelSource
from warpsmith.workers.judge.languages import imports
from warpsmith.workers.judge.machine.elf import FUNCTION, Symbol
from warpsmith.workers.judge.sanitizers import build
from warpsmith.workers.judge.sanitizers.tools import ADDRESS, THREADS, Tool

CHOSEN = [(), ("-O1",), ("-Ofast",), ("-Ofast", "-O2"), ("-O2", "-Ofast"), ("-ffast-math", "-fno-exceptions")]


def macros(flags: list[str]) -> set[str]:
    """The macros that the compiler defines by itself, as its `#define` lines."""
    command = [*cpp.compiler(), *flags, "-dM", "-E", "-x", "c++", "/dev/null"]
    return set(subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout.splitlines())


@pytest.mark.parametrize("tool", [ADDRESS, THREADS], ids=lambda tool: tool.name)
@pytest.mark.parametrize("chosen", CHOSEN, ids=" ".join)
def test_the_gate_refuses_every_macro_that_differs(tool: Tool, chosen: tuple[str, ...]) -> None:
    entry = KernelSource("kernels", "cpp", "", chosen, 1, 1)
    real, sanitized = macros([*cpp.BASE_FLAGS, *chosen]), macros(build.kernel_flags(tool, entry))
    assert any("__SANITIZE_" in line for line in sanitized - real)
    names = {line.split()[1] for line in real ^ sanitized}
    assert [name for name in names if not source_problems(f"#ifdef {name}\n#endif", "cpp", 1)] == []


def test_a_sanitized_build_is_position_independent_as_the_real_one_is() -> None:
    """So that it differs in fewer macros, not only in such as the gate refuses."""
    entry = KernelSource("kernels", "cpp", "", (), 1, 1)
    found = {line.split()[1] for line in macros(build.kernel_flags(ADDRESS, entry))}
    assert "__PIC__" in found
    assert "__PIE__" not in found


@pytest.mark.parametrize("name", ["omp_get_wtime", "omp_get_wtick", "omp_get_num_procs", "omp_get_wtime_"])
def test_a_library_takes_no_clock_and_no_cores_of_openmp(name: str) -> None:
    """A name that was made at the preprocessor, too."""
    assert imports.foreign([taken(name), taken("omp_get_max_threads")]) == [name]


def taken(name: str) -> Symbol:
    """A function that a library needs of libgomp."""
    return Symbol(name, FUNCTION, False, 0, 0, 0, "libgomp.so.1")
