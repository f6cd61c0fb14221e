"""Copies of the judge: the modules of ours that `python -m warpsmith.workers.judge` imports.

Found by reading the imports of every module of `workers.judge`, since some are started as programs of their own.
"""

from __future__ import annotations

import ast
import shutil
from collections.abc import Iterator
from pathlib import Path

from warpsmith import IMPORT_ROOT
from warpsmith.kernels_db.job.python_parsing import parse_module

START = "warpsmith/workers/judge"


def list_judge_files() -> list[Path]:
    """List the files that the judge needs, relative to the installation, sorted."""
    pending = [file.relative_to(IMPORT_ROOT) for file in (IMPORT_ROOT / START).rglob("*.py")]
    found: set[Path] = set()
    while pending:
        file = pending.pop()
        if file in found:
            continue
        found.add(file)
        pending.extend(package / "__init__.py" for package in file.parents if package.name)
        for module in _list_imports(file):
            pending.extend(_find_file(module))
    return sorted(found)


def copy_judge(directory: Path) -> int:
    """Copy the judge's files under `directory`; returns how many."""
    files = list_judge_files()
    for file in files:
        (directory / file).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(IMPORT_ROOT / file, directory / file)
    return len(files)


def _list_imports(file: Path) -> Iterator[str]:
    """Yield the modules that a file imports; of `from a import b` both `a` and `a.b`."""
    package = ".".join(file.parent.parts)
    for node in _walk_executed(parse_module((IMPORT_ROOT / file).read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            base = ".".join([*above, *([node.module] if node.module else [])])
            yield base
            yield from (f"{base}.{alias.name}" for alias in node.names)


def _walk_executed(module: ast.Module) -> Iterator[ast.AST]:
    """Yield every node except those for type checkers alone."""
    left: list[ast.AST] = [module]
    while left:
        node = left.pop()
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            left += node.orelse
            continue
        yield node
        left += ast.iter_child_nodes(node)


def _find_file(module: str) -> list[Path]:
    """Find the file of a module of ours; none for other packages and for other names."""
    if module.partition(".")[0] != "warpsmith":
        return []
    path = Path(*module.split("."))
    return [file for file in (path / "__init__.py", path.with_suffix(".py")) if (IMPORT_ROOT / file).is_file()][:1]
