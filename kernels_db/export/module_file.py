"""The `module` format: one Python file to paste into a project.

It is the package folded into a file (`fold`), so it has the package's guards, fallback and switches. It needs PyTorch
and the language's own compiler.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from warpsmith.kernels_db.export.evidence import LICENSE_HEADER, docstring, summary
from warpsmith.kernels_db.export.fold import fold, public_names
from warpsmith.kernels_db.export.joining import joined
from warpsmith.kernels_db.export.kernel import ExportedKernel, module_name, write_project
from warpsmith.kernels_db.export.package import importable_files


def build(kernel: ExportedKernel, directory: Path, *others: ExportedKernel, name: str | None = None) -> Path:
    """Write the file into a new directory below `directory` and return that.

    It holds the other kernels as well. Raises FileExistsError where the directory exists, SpecErrors where the
    others are not of the same op.
    """
    kernels = joined([kernel, *others])
    module = name or module_name(*kernels)
    return write_project(
        directory, f"{module}-module", {f"{module.removeprefix('warpsmith_')}.py": _module_text(kernels, module)}
    )


def _module_text(kernels: Sequence[ExportedKernel], module: str) -> str:
    """Return the file's text: the package's exports, under the package's names."""
    op = kernels[0].op
    files = importable_files(kernels, module)
    names = public_names(files["__init__.py"])
    use = [f"`{op.name}` is the op; `explain` says which implementation would serve a call, and why.", ""]
    lines = [
        LICENSE_HEADER + docstring(op.name, op.description, use + summary(*kernels)),
        fold(module, files),
        f"__all__ = {names!r}",
        *(f"{name} = _package.{name}" for name in names),
    ]
    return "\n".join(lines) + "\n"
