"""Several source files as one candidate: a Python file that carries them, writes them beside itself as it is loaded,
and imports them from there, so that they find each other and Triton finds their source.

The candidate is free Python. Nothing of it runs before a runner loads it. What the files import stands at its top,
where the judge sees it without running anything.
"""

from __future__ import annotations

import ast
import posixpath
from collections.abc import Iterator, Mapping

from kernels_db.formats import python_source
from kernels_db.formats.embedded import literal
from kernels_db.formats.files import RawFile
from kernels_db.module_imports import Import, loaded_imports

_PACKAGE = "_imported_files"
"""The directory beside the candidate; a module among the files is imported from this package, relative imports from
its neighbours, absolute ones from the directory."""

_HEAD = """# Written by `warpsmith import`: free Python, which the judge runs in the sandbox tier alone.

import importlib
import os
import sys

"""
_IMPORTED = "# What the files import, so that a module that is not there is found before anything runs.\n"
_LOADER = f'''

def _module(name):
    """The module of that name among the files."""
    return importlib.import_module("{_PACKAGE}." + name)


def _unpack():
    here = os.path.dirname(os.path.abspath(__file__))
    root = os.path.join(here, "{_PACKAGE}")
    for path, text in _FILES.items():
        place = os.path.join(root, *path.split("/"))
        os.makedirs(os.path.dirname(place), exist_ok=True)
        with open(place, "w", encoding="utf-8", newline="") as stream:
            stream.write(text)
    sys.path[:0] = [root, here]
    importlib.invalidate_caches()


_unpack()
'''


def packed(title: str, files: Mapping[str, str], entry: str) -> str:
    """Source of a module with `_module(name)`, under a comment that says `title`. `entry`: the path of the file with
    which everything begins. Raises SpecErrors where a Python file does not parse.
    """
    imports = "".join(f"import {name}  # as {where} does\n" for name, where in _outside(files, entry).items())
    lines = "".join(f"    {path!r}: {literal(text)},\n" for path, text in sorted(files.items()))
    said = "".join(character if character.isprintable() else " " for character in title)
    head = f"# {said}\n{_HEAD}" + (f"{_IMPORTED}{imports}\n" if imports else "")
    return f"{head}_FILES = {{\n{lines}}}\n{_LOADER}"


def _outside(files: Mapping[str, str], entry: str) -> dict[str, str]:
    """Modules that are imported as the entry is loaded and that are none of the files, each with where that stands."""
    found: dict[str, str] = {}
    left, seen = [entry], {entry}
    while left:
        path = left.pop()
        for item in loaded_imports(_parsed(path, files[path])):
            inside = [place for place in _places(item, path) if place in files]
            fresh = [place for place in inside if place not in seen]
            left += fresh
            seen |= set(fresh)
            if not inside and item.level == 0 and item.top != "__future__" and not _is_directory(item.top, files):
                found.setdefault(item.top, f"{path}, line {item.line},")
    return found


def _places(item: Import, importer: str) -> Iterator[str]:
    """Where among the files the modules of an import would lie."""
    directory = posixpath.dirname(importer)
    for _ in range(item.level - 1):
        directory = posixpath.dirname(directory)
    base = directory if item.level else ""
    parts = item.module.split(".") if item.module else []
    for names in ([], *([name] for name in item.names)):
        path = posixpath.join(base, *parts, *names)
        yield f"{path}.py"
        yield posixpath.join(path, "__init__.py")
    for count in range(1, len(parts)):
        yield posixpath.join(base, *parts[:count], "__init__.py")


def _is_directory(name: str, files: Mapping[str, str]) -> bool:
    return any(path.startswith(f"{name}/") for path in files)


def _parsed(path: str, text: str) -> ast.Module:
    return python_source.parse(RawFile(path, text.encode("utf-8", "surrogatepass")))
