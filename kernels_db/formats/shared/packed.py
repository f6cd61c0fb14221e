"""Several source files as one candidate: a Python file that carries them.

It writes them beside itself as it is loaded, and imports them from there, so that they find each other and
Triton finds their source. The candidate is free Python. Nothing of it runs before a runner loads it. The
modules that the files import as they are loaded are listed at its top in a function that is never called: the
judge reads it without running anything, and the files' own statements keep their order, as where one sets an
environment variable before it imports.
"""

from __future__ import annotations

import ast
import posixpath
from collections.abc import Iterator, Mapping

from warpsmith.kernels_db.formats.shared import python_source
from warpsmith.kernels_db.formats.shared.embedded import literal
from warpsmith.kernels_db.formats.shared.files import RawFile
from warpsmith.kernels_db.job.module_imports import DECLARING, Import, loaded_imports

_PACKAGE = "_imported_files"
"""The directory beside the candidate.

A module among the files is imported from this package, relative imports from its neighbours, absolute ones
from the directory.
"""

# The title is on the third line: on the first two, "encoding: e4m3" would say how the file is encoded.
_HEAD = """# Written by `warpsmith import`: free Python, which the judge runs in the sandbox tier alone.

# {title}

import importlib
import os
import sys

"""
_IMPORTED = f'''
def {DECLARING}():
    """Read, and never called: a module that is not there is found before anything runs."""
'''
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
    """Return source of a module with `_module(name)`, under a comment that says `title`.

    `entry`: the path of the file with which everything begins. Raises SpecErrors where a Python file does not
    parse.
    """
    imports = "".join(f"    import {name}  # as {where} does\n" for name, where in _outside(files, entry).items())
    lines = "".join(f"    {path!r}: {literal(text)},\n" for path, text in sorted(files.items()))
    said = "".join(character if character.isprintable() else " " for character in title)
    head = _HEAD.replace("{title}", said) + (f"{_IMPORTED}{imports}\n\n" if imports else "")
    return f"{head}_FILES = {{\n{lines}}}\n{_LOADER}"


def _outside(files: Mapping[str, str], entry: str) -> dict[str, str]:
    """Return the modules outside the files that loading the entry always imports, with places.

    A place is the file and line of the import.
    """
    found: dict[str, str] = {}
    left, seen = [entry], {entry}
    while left:
        path = left.pop()
        for item in loaded_imports(_parsed(path, files[path])):
            inside = [place for place in _places(item, path) if place in files]
            fresh = [place for place in inside if place not in seen]
            left += fresh
            seen |= set(fresh)
            if not inside and item.level == 0 and item.top != "__future__" and not _may_be_inside(item.top, files):
                found.setdefault(item.top, f"{path}, line {item.line},")
    return found


def _places(item: Import, importer: str) -> Iterator[str]:
    """Yield the paths where the modules of an import would lie among the files."""
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


def _may_be_inside(name: str, files: Mapping[str, str]) -> bool:
    """Check whether a file or a directory has this name, anywhere.

    A file may add to `sys.path` before it imports.
    """
    return any(name in path.removesuffix(".py").split("/") for path in files)


def _parsed(path: str, text: str) -> ast.Module:
    return python_source.parse(RawFile(path, text.encode("utf-8", "surrogatepass")))
