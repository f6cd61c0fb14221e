"""The languages of candidates: what tells one from another, once for every part of Warpsmith that asks.

Standard library only. Order is the order in which users are offered them: the first of a device is its default.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Compiler = Literal["g++", "nvrtc", "triton", "cute", "tilelang"]
"""What builds a candidate's kernels: g++, CUDA's run-time compiler, Triton, CuTe DSL, TileLang.

The last three build functions.
"""


CARRIED: tuple[Compiler, ...] = ("cute", "tilelang")
"""Compilers whose builds travel with a bundle: each build is found by the arguments of a call."""

CUTE_KERNEL = "kernel_cutlass_"
"""What CuTe DSL puts before the name of a kernel's function; behind it stand `_` and the types of its arguments."""


@dataclass(frozen=True)
class Language:
    """One language.

    title: as users read it. devices: types of device that it is judged on. compiler: None where nothing of ours builds
    it. imports: dotted names, of which a file in the language imports one or more. package: as which the compiler is
    imported; None where it is a program of the host. requirements: of an export, beside torch. interpreted: without a
    GPU it runs under Triton's interpreter.
    without_device: what is done with a candidate for a GPU that is not here; empty where there is no such case.
    gated: an allow-list reads it before anything runs it; else the sandbox alone holds it.
    """

    name: str
    title: str
    devices: tuple[str, ...]
    compiler: Compiler | None
    imports: tuple[str, ...] = ()
    package: str | None = None
    requirements: tuple[str, ...] = ()
    interpreted: bool = False
    without_device: str = ""
    gated: bool = True


LANGUAGES: dict[str, Language] = {
    one.name: one
    for one in (
        Language("cpp", "C++", ("cpu",), "g++", imports=("kernels_db.runtime.cpp",)),
        Language(
            "triton",
            "Triton",
            ("cuda",),
            "triton",
            imports=("triton",),
            package="triton",
            requirements=("triton",),
            interpreted=True,
            without_device="the candidate is compiled for the target and checked under Triton's interpreter on the "
            "smallest workloads; nothing is timed",
        ),
        Language(
            "cuda",
            "CUDA",
            ("cuda",),
            "nvrtc",
            imports=("kernels_db.runtime.cuda",),
            package="cuda.core",
            requirements=("cuda-core", "nvidia-cuda-nvrtc"),
            without_device="the candidate is compiled for the target, and its kernels' resources are reported; it is "
            "not run",
        ),
        Language(
            "gluon",
            "Gluon",
            ("cuda",),
            "triton",
            imports=("triton.experimental.gluon",),
            package="triton",
            requirements=("triton",),
            without_device="the candidate is compiled for the target, and its kernels' resources are reported; it is "
            "not run, since Triton's interpreter knows no Gluon",
        ),
        Language(
            "cute",
            "CuTe DSL",
            ("cuda",),
            "cute",
            imports=("kernels_db.runtime.cutedsl", "cutlass"),
            package="cutlass",
            requirements=("nvidia-cutlass-dsl", "cuda-core"),
            without_device="the candidate is compiled for the target, and its kernels' resources are reported; it is "
            "not run",
        ),
        Language(
            "tilelang",
            "TileLang",
            ("cuda",),
            "tilelang",
            imports=("kernels_db.runtime.tilelang", "tilelang"),
            package="tilelang",
            requirements=("tilelang", "cuda-core", "nvidia-cuda-nvrtc", "nvidia-cuda-cccl"),
            without_device="the candidate is compiled for the target, and its kernels' resources are reported; it is "
            "not run",
        ),
        Language(
            "python",
            "free Python",
            ("cpu", "cuda"),
            None,
            without_device="the file is parsed and its imports are looked up; it is not run",
            gated=False,
        ),
    )
}

GATED = tuple(one.name for one in LANGUAGES.values() if one.gated)
"""The languages of searches, and of files whose imports name one."""

NAMED = ", ".join(GATED[:-1]) + f" or {GATED[-1]}"
"""The gated languages in words."""


def of_device(device: str, *, gated: bool = False) -> tuple[str, ...]:
    """Return the languages that are judged on a type of device, the default first; `gated`: those of searches alone."""
    return tuple(one.name for one in LANGUAGES.values() if device in one.devices and (one.gated or not gated))


def built_by(compiler: Compiler) -> tuple[str, ...]:
    """Return the languages whose kernels a compiler builds."""
    return tuple(one.name for one in LANGUAGES.values() if one.compiler == compiler)


def imported_languages(modules: set[str]) -> list[str]:
    """Return the gated languages that a file's imports name, by the dotted names of what it imports.

    Where two are of one compiler, the nearer name counts: a file that imports Gluon imports Triton too.
    """
    found = {one.name: one for one in LANGUAGES.values() if any(_leads_to(modules, name) for name in one.imports)}
    inner = {
        other.name
        for one in found.values()
        for other in found.values()
        if any(name.startswith(f"{above}.") for name in one.imports for above in other.imports)
    }
    return [name for name in found if name not in inner]


def _leads_to(modules: set[str], name: str) -> bool:
    return any(module == name or module.startswith(f"{name}.") for module in modules)
