"""A copy of the judge: the modules of ours that `python -m warpsmith.workers.judge` imports, and no others.

Found by reading the sources from every module of `workers.judge` on, since some are started as programs of their own.
"""

from __future__ import annotations

import ast
import shutil
from collections.abc import Iterator
from pathlib import Path

from warpsmith import IMPORT_ROOT

START = "warpsmith/workers/judge"


def judge_files() -> list[Path]:
    """The files that the judge needs, relative to the installation, sorted."""
    pending = [file.relative_to(IMPORT_ROOT) for file in (IMPORT_ROOT / START).rglob("*.py")]
    found: set[Path] = set()
    while pending:
        file = pending.pop()
        if file in found:
            continue
        found.add(file)
        pending.extend(package / "__init__.py" for package in file.parents if package.name)
        for module in _imports(file):
            pending.extend(_file_of(module))
    return sorted(found)


def copy_judge(directory: Path) -> int:
    """Copy them under `directory`; returns how many."""
    files = judge_files()
    for file in files:
        (directory / file).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(IMPORT_ROOT / file, directory / file)
    return len(files)


def _imports(file: Path) -> Iterator[str]:
    """The modules that a file names in its imports; of `from a import b` both `a` and `a.b`, since b may be one."""
    package = ".".join(file.parent.parts)
    for node in _executed(ast.parse((IMPORT_ROOT / file).read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            base = ".".join([*above, *([node.module] if node.module else [])])
            yield base
            yield from (f"{base}.{alias.name}" for alias in node.names)


def _executed(module: ast.Module) -> Iterator[ast.AST]:
    """Every node but those that only a type checker reads."""
    left: list[ast.AST] = [module]
    while left:
        node = left.pop()
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            left += node.orelse
            continue
        yield node
        left += ast.iter_child_nodes(node)


def _file_of(module: str) -> list[Path]:
    """The file of a module of ours; none where it is somebody else's, or no module."""
    if module.partition(".")[0] != "warpsmith":
        return []
    path = Path(*module.split("."))
    return [file for file in (path / "__init__.py", path.with_suffix(".py")) if (IMPORT_ROOT / file).is_file()][:1]
