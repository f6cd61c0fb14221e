"""The packages that an expert imports: their versions, and where they lie on this host.

Read from the source of the expert; nothing of it, and none of the packages, is imported here.
"""

from __future__ import annotations

import ast
import functools
import importlib.util
import re
import sys
from collections.abc import Mapping
from importlib import metadata

from warpsmith.kernels_db.job.documents import JobOp
from warpsmith.kernels_db.job.python_parsing import parse_module

_TOLD_ANYWAY = "torch"
"""A verdict's `versions` have it."""


def imported(source: str) -> list[str]:
    """Return the top-level modules that a source imports anywhere, without Python's own.

    Empty where it does not parse.
    """
    try:
        nodes = list(ast.walk(parse_module(source)))
    except (SyntaxError, ValueError):
        return []  # its runner says why it cannot be loaded
    names = [alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names]
    names += [node.module for node in nodes if isinstance(node, ast.ImportFrom) and node.module and not node.level]
    return sorted({name.partition(".")[0] for name in names} - sys.stdlib_module_names)


def versions(op: JobOp) -> dict[str, dict[str, str]]:
    """Return the distributions, with their versions, of each expert of an op; empty ones where none is installed."""
    return {name: _versions(source) for name, source in op.get("experts", {}).items()}


def _versions(source: str) -> dict[str, str]:
    owners = _owners()
    names = {owner for module in imported(source) for owner in owners.get(module, ())} - {_TOLD_ANYWAY}
    found = {_normalized(name): _version(name) for name in names}
    return {name: version for name, version in sorted(found.items()) if version is not None}


def _normalized(name: str) -> str:
    """Return a distribution's name as PEP 503 writes it: releases of one package spell it in several ways."""
    return re.sub(r"[-_.]+", "-", name).lower()


def _version(name: str) -> str | None:
    """Return a distribution's version; None where it was taken away since they were listed."""
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


@functools.cache
def _owners() -> Mapping[str, list[str]]:
    """Return the distributions of every module: they are read once, which takes some tenths of a second."""
    return metadata.packages_distributions()


def places(source: str) -> list[str]:
    """Return the files and directories of the packages that a source imports.

    One that is installed for development lies elsewhere than in Python's own directories. A directory without
    `__init__.py` is left out: any directory that an operator's path happens to have would be a package.
    """
    found: list[str] = []
    for module in imported(source):
        try:
            spec = importlib.util.find_spec(module)
        except (ImportError, ValueError):
            continue
        if spec is not None and spec.origin is not None:
            found += spec.submodule_search_locations or [spec.origin]
    return [place for place in found if place.startswith("/")]
