"""The `module` format: one Python file to paste into a project.

It is the package folded into a file (`fold`), so it has the package's guards, fallback and switches. It needs PyTorch
and the language's own compiler.
"""

from __future__ import annotations

from pathlib import Path

from kernels_db.export.evidence import LICENSE_HEADER, docstring, summary
from kernels_db.export.fold import fold, public_names
from kernels_db.export.kernel import ExportedKernel, module_name, write_project
from kernels_db.export.package import importable_files
from kernels_db.op import parse_op


def build(kernel: ExportedKernel, directory: Path) -> Path:
    """Write the file into a new directory below `directory` and return that; raises FileExistsError where it exists."""
    module = module_name(kernel)
    return write_project(
        directory, f"{module}-module", {f"{module.removeprefix('warpsmith_')}.py": module_text(kernel)}
    )


def module_text(kernel: ExportedKernel) -> str:
    """The file: what the package exports, under the package's names."""
    op = parse_op(kernel.spec)
    module = module_name(kernel)
    files = importable_files(kernel, op, module)
    names = public_names(files["__init__.py"])
    use = [f"`{op.name}` is the op; `explain` says which implementation would serve a call, and why.", ""]
    lines = [
        LICENSE_HEADER + docstring(op.name, op.description, use + summary(kernel)),
        fold(module, files),
        f"__all__ = {names!r}",
        *(f"{name} = _package.{name}" for name in names),
    ]
    return "\n".join(lines) + "\n"
