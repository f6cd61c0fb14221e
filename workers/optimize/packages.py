"""Exported packages on their way into a model.

Their files are checked before anything of them is imported.
"""

from __future__ import annotations

import importlib
import shutil
import sys
from collections.abc import Sequence
from importlib import resources
from pathlib import Path

from warpsmith.kernels_db.export.kernel import write_project
from warpsmith.kernels_db.spec.names import identifier
from warpsmith.workers.exports.project import FILE_CHECKS, Project, Refused, open_project
from warpsmith.workers.optimize.applied.kernel import Kernel, NotUsable

MODULES = (
    "graph.py",
    "match.py",
    "kernel.py",
    "state.py",
    "standins.py",
    "comparing.py",
    "places.py",
    "applying.py",
)
_INIT = '''"""Kernels for {model}, found and verified by Warpsmith, and what puts them into it. PyTorch alone is needed.

    from {name} import apply

    applied = apply(model, example_inputs)   # once the weights are loaded and lie on their device
    print(applied.report())                  # what was replaced where, what was not, and why
    applied.undo()                           # the same module objects, the same forward

Each package beside this file guards its own envelope, and PyTorch serves every call outside of it.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import Any

from torch import nn

from .applying import Applied, Disagreement, Place
from .applying import apply as _apply
from .graph import NotExportable
from .kernel import Kernel, NotUsable

__all__ = ["PACKAGES", "Applied", "Disagreement", "NotExportable", "NotUsable", "Place", "apply"]

PACKAGES = ({packages})
"""The packages, by name; the first of several that fit a place serves it."""


def apply(model: nn.Module, example_inputs: Any, packages: Sequence[str] = PACKAGES) -> Applied:
    """Put the kernels of these packages into `model`, wherever they compute what it computes, and compare its results
    with those before. `example_inputs` are the arguments of one call: a tensor, a tuple, or a dict by name; other batch
    sizes are served as well, while gradients are off.

    Raises NotExportable, NotUsable, Disagreement where the results are others, and ValueError for a model that has
    kernels; the model is then as it was.
    """
    kernels = [Kernel(importlib.import_module(f".{{name}}", __name__)) for name in packages]
    return _apply(model, example_inputs, kernels)
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


def kernels(projects: Sequence[Project]) -> tuple[list[Kernel], dict[str, str]]:
    """Import the packages; also return those that fit no model, with the reason."""
    usable, others = [], {}
    for project in projects:
        sys.path.insert(0, str(project.directory.resolve()))
        try:
            usable.append(Kernel(importlib.import_module(project.module)))
        except NotUsable as reason:
            others[project.module] = str(reason)
    return usable, others


def destination(model: Path, output: Path) -> Path:
    """Return the path that `generate` writes to for a model's file, below `output`."""
    return output / _name(model)


def generate(model: Path, projects: Sequence[Project], output: Path) -> Path:
    """Write a package that puts these kernels into a model in the user's own process.

    Below `output`; `model` is the model's file. Raises FileExistsError where it exists.
    """
    name = _name(model)
    source = resources.files("warpsmith.workers.optimize.applied")
    files = {each: (source / each).read_text("utf-8") for each in MODULES}
    packages = ", ".join(f'"{project.module}"' for project in projects) + ("," if len(projects) == 1 else "")
    files["__init__.py"] = _INIT.format(model=model.name, name=name, packages=packages)
    written = write_project(output, name, files)
    for project in projects:
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(project.package, written / project.module, ignore=ignored)
    return written


def _name(model: Path) -> str:
    return f"{identifier(model.stem, 'model')}_kernels"
