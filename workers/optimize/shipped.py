"""The kernels that `warpsmith.optimize` puts into models: those that ship, and those of exported packages."""

from __future__ import annotations

import functools
import hashlib
import importlib
import json
import os
import sys
from collections.abc import Iterator, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from warpsmith import kernels_db
from warpsmith.kernels_db.runtime.cache import cache_directory
from warpsmith.workers.optimize.compiled.kernel import Kernel, NotUsable
from warpsmith.workers.optimize.compiled.patterns import keep
from warpsmith.workers.optimize.compiled.served import Served

if TYPE_CHECKING:
    from warpsmith.workers.exports.project import Project

SHIPPED = Path(kernels_db.__file__).parent / "library"
BUILDING = ("export", "formats", "job", "library/__init__.py", "runtime", "spec")
"""What of `kernels_db` reads entries and builds packages."""


ENTRY = ("op.json", "candidate.py", "verdict.json", "kernel.json", "LINEAGE.md")
"""The files of an entry, as `kernels_db.export.library.FILES`, which takes half a second to import."""


def shipped_for(tensors: Sequence[torch.Tensor]) -> list[Served]:
    """Return the kernels that ship with Warpsmith for the devices of these tensors, as packages in the user's cache."""
    targets = dict.fromkeys(_target(device) for device in dict.fromkeys(tensor.device for tensor in tensors))
    return [kernel for target in targets if target is not None for kernel in shipped_of(target)]


@functools.cache
def shipped_of(target: str) -> tuple[Served, ...]:
    """Return the kernels that ship for a target."""
    return tuple(_served(_directories(target)))


def _directories(target: str) -> Iterator[Path]:
    """Yield the directories of the packages of the kernels that ship for a target.

    An entry that was read, checked and built before is neither read nor built again: its files' bytes and the code that
    builds packages name the directory.
    """
    file = cache_directory().parent / "packages" / f"built.{target.replace(':', '_')}.json"
    known, code = _built(file), _code()
    found: dict[str, list[str] | None] = {}
    for directory in sorted(SHIPPED.iterdir()):
        if not any((directory / name).is_file() for name in ENTRY):  # Python's own, or what an update left of a kernel
            continue
        files = sorted(file for file in directory.glob("*") if file.is_file() and file.suffix != ".pyc")
        key = _digest(code, target, *(part for file in files for part in (file.name, file.read_bytes())))
        if key in known and ((place := known[key]) is None or Path(*place).is_dir()):
            found[key] = place
        else:
            from warpsmith.workers.optimize import building  # noqa: PLC0415 - half a second, if nothing is to be built

            found[key] = building.package_of(directory, target)
        if (package := found[key]) is not None:
            yield Path(*package)
    if found != known:
        keep(file, found)


def given(directories: Sequence[str | os.PathLike[str]]) -> list[Served]:
    """Return the kernels of exported packages. Raises what `packages.opened` raises, NotUsable."""
    from warpsmith.workers.optimize import packages  # noqa: PLC0415 - imports what checks sources

    usable, others = served(packages.opened([Path(directory) for directory in directories]))
    if others:
        raise NotUsable("; ".join(others.values()))
    return usable


def served(projects: Sequence[Project]) -> tuple[list[Served], dict[str, str]]:
    """Import packages whose files were checked; also return those that fit no model, with the reason."""
    usable, others = [], {}
    for project in projects:
        sys.path.insert(0, str(project.directory.resolve()))
        try:
            usable.append(Served(Kernel(importlib.import_module(project.module))))
        except NotUsable as reason:
            others[project.module] = str(reason)
    return usable, others


def _served(directories: Iterator[Path]) -> Iterator[Served]:
    for directory in directories:
        try:
            yield Served(Kernel(directory))
        except NotUsable:
            continue


def _target(device: torch.device) -> str | None:
    if device.type == "cpu":
        return "cpu"
    if device.type != "cuda" or torch.version.hip is not None:
        return None
    major, minor = torch.cuda.get_device_capability(device)
    return f"cuda:sm_{major}{minor}"


def _built(file: Path) -> dict[str, list[str] | None]:
    """Return the directory and the name of each package that was built, None for a kernel of another target.

    What does not read as that is left out, and built anew.
    """
    try:
        found = json.loads(file.read_text("utf-8"))
    except (OSError, ValueError):
        return {}
    if not isinstance(found, dict):
        return {}
    return {key: each for key, each in found.items() if each is None or _is_place(each)}


def _is_place(value: object) -> bool:
    return isinstance(value, list) and len(value) == 2 and all(isinstance(part, str) for part in value)


@functools.cache
def _code() -> str:
    """Return a digest of all that reads entries and builds packages."""
    root = Path(kernels_db.__file__).parent
    files = [file for part in BUILDING for file in sorted((root / part).rglob("*")) if file.suffix != ".pyc"]
    files.append(Path(__file__).with_name("building.py"))
    given = (part for file in files if file.is_file() for part in (file, file.read_bytes()))
    return _digest(version("warpsmith"), *given)


def _digest(*facts: object) -> str:
    """Return a digest of texts and bytes, each told from its neighbours."""
    digest = hashlib.sha256()
    for fact in facts:
        data = fact if isinstance(fact, bytes) else str(fact).encode()
        digest.update(len(data).to_bytes(8, "big") + data)
    return digest.hexdigest()
