"""Exported packages on their way into a model.

Their files are checked before anything of them is imported.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from importlib import resources
from pathlib import Path

from warpsmith.kernels_db.export.kernel import write_project
from warpsmith.kernels_db.spec.names import identifier
from warpsmith.workers.exports.project import FILE_CHECKS, Project, Refused, open_project

MODULES = (
    "attention.py",
    "backend.py",
    "bag_kernel.py",
    "bags.py",
    "bounds.py",
    "choice.py",
    "choices.py",
    "comparing.py",
    "groups.py",
    "handle.py",
    "inductor.py",
    "inputs.py",
    "kept.py",
    "kernel.py",
    "known.py",
    "leads.py",
    "masks.py",
    "match.py",
    "meanwhile.py",
    "patterns.py",
    "places.py",
    "products.py",
    "rewriting.py",
    "seams.py",
    "served.py",
    "trial.py",
    "turns.py",
)
"""Of `compiled`, which need nothing of Warpsmith but CARRIED."""
CARRIED = {
    "warpsmith.kernels_db.runtime.cache": "cache",
    "warpsmith.kernels_db.runtime.errors": "errors",
    "warpsmith.workers.judge.clock.timing": "timing",
    "warpsmith.workers.judge.machine.processor": "processor",
}
"""Modules that go with them, by what they are called there."""
_INIT = '''"""Kernels for {model}, found and verified by Warpsmith, and what compiles it with them. PyTorch is enough.

    from {name} import optimize

    fast = optimize(model, mode="reduce-overhead")   # modes are those of torch.compile; None is its default
    fast(batch)                                      # the first call of each kind compiles
    print(fast.report())                             # which kernel is where, what it brings there, what is not and why
    print(fast.compare(batch))                       # against the model's own results and float64
    fast.model                                       # the model itself, unchanged

Each package beside this file guards its own envelope, and PyTorch serves every call outside of it.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import Any

from .comparing import Comparison
from .handle import Optimized
from .kernel import Kernel, NotUsable
from .rewriting import Keep
from .served import Served

__all__ = ["PACKAGES", "Comparison", "NotUsable", "Optimized", "optimize"]

PACKAGES = ({packages})
"""The packages, by name."""


def optimize(
    model: Any,
    *,
    mode: str | None = None,
    dynamic: bool | None = None,
    packages: Sequence[str] = PACKAGES,
    keep: Keep = "{keep}",
) -> Optimized:
    """Compile a model with the kernels of these packages where they pay, and Inductor for the rest.

    mode: Inductor's ("reduce-overhead", "max-autotune", ...); None: its default. dynamic: as torch.compile takes it.
    keep: which kernels stay where they are right: those that are surely "faster" than Inductor's code for the same
    part, or all ("right"). Nothing is compiled before the first call. Kernels serve while gradients are off.
    """
    served = [Served(Kernel(importlib.import_module(f".{{name}}", __name__))) for name in packages]
    return Optimized(model, mode, dynamic, lambda _: served, keep)
'''


class BadPackage(ValueError):  # noqa: N818 - named for what was found
    """A directory that holds no package, or one whose files are not what they claim."""


def opened(directories: Sequence[Path]) -> list[Project]:
    """Open the exported packages in these directories. Raises NotAnExport, BadPackage."""
    projects = []
    for directory in directories:
        project = open_project(directory)
        for check, look in FILE_CHECKS.items():
            try:
                look(project)
            except Refused as error:
                raise BadPackage(f"{project.module}: {check}: {error}") from None
        projects.append(project)
    return projects


def destination(model: Path, output: Path) -> Path:
    """Return the path that `generate` writes to for a model's file, below `output`."""
    return output / _name(model)


def generate(model: Path, projects: Sequence[Project], output: Path, keep: str) -> Path:
    """Write a package that compiles a model with these kernels in the user's own process.

    Below `output`; `model` is the model's file, `keep` what its `optimize` does by default. Raises FileExistsError
    where it exists.
    """
    name = _name(model)
    source = resources.files("warpsmith.workers.optimize.compiled")
    files = {each: _relocate((source / each).read_text("utf-8")) for each in MODULES}
    for module, carried in CARRIED.items():
        package, _, file = module.rpartition(".")
        files[f"{carried}.py"] = (resources.files(package) / f"{file}.py").read_text("utf-8")
    packages = ", ".join(f'"{project.module}"' for project in projects) + ("," if len(projects) == 1 else "")
    files["__init__.py"] = _INIT.format(model=model.name, name=name, packages=packages, keep=keep)
    written = write_project(output, name, files)
    for project in projects:
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(project.package, written / project.module, ignore=ignored)
    return written


def _relocate(source: str) -> str:
    """Let imports of what is carried use the copies beside the file."""
    for module, carried in CARRIED.items():
        source = source.replace(f"from {module} import", f"from .{carried} import")
    return source


def _name(model: Path) -> str:
    return f"{identifier(model.stem, 'model')}_kernels"
