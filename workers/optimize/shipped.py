"""The kernels that `warpsmith.optimize` puts into models: those that ship, and those of exported packages."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import importlib
import os
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import ModuleType

import torch

from warpsmith.kernels_db.export.dtypes import of_each_dtype
from warpsmith.kernels_db.export.kernel import ExportedKernel, module_name
from warpsmith.kernels_db.export.package import PROVENANCE, build
from warpsmith.kernels_db.library import Entry, entries
from warpsmith.kernels_db.runtime.cache import cache_directory
from warpsmith.kernels_db.spec.op import Target
from warpsmith.workers.exports.project import Project
from warpsmith.workers.optimize import packages
from warpsmith.workers.optimize.compiled.kernel import Kernel, NotUsable
from warpsmith.workers.optimize.compiled.served import Served


def shipped_for(tensors: Sequence[torch.Tensor]) -> list[Served]:
    """Return the kernels that ship with Warpsmith for the devices of these tensors, as packages in the user's cache."""
    targets = dict.fromkeys(_target(device) for device in dict.fromkeys(tensor.device for tensor in tensors))
    return [kernel for target in targets if target is not None for kernel in _shipped(target)]


@functools.cache
def _shipped(target: str) -> tuple[Served, ...]:
    found = [entry for entry in entries() if entry.target == target]
    return tuple(_served(_package(_exported(entry)) for entry in found))


def given(directories: Sequence[str | os.PathLike[str]]) -> list[Served]:
    """Return the kernels of exported packages. Raises what `packages.opened` raises, NotUsable."""
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


def _served(modules: Iterator[ModuleType]) -> Iterator[Served]:
    for module in modules:
        try:
            yield Served(Kernel(module))
        except NotUsable:
            continue


def _target(device: torch.device) -> str | None:
    if device.type == "cpu":
        return "cpu"
    if device.type != "cuda" or torch.version.hip is not None:
        return None
    major, minor = torch.cuda.get_device_capability(device)
    return str(Target.parse(f"cuda:sm_{major}{minor}"))


def _exported(entry: Entry) -> ExportedKernel:
    document = entry.document
    return ExportedKernel(
        id=document["id"],
        spec=entry.op.document(),
        target=entry.target,
        language=entry.language,
        source=entry.source,
        source_digest=document["source_digest"],
        envelope=document["envelope"],
        evidence=entry.evidence,
        lineage=document["lineage"],
        verified_at=document["verified_at"],
        prompts=document["prompts"],
    )


def _package(kernel: ExportedKernel) -> ModuleType:
    """Import a kernel's package from the cache, where it is written under a digest of all its files."""
    kernels = of_each_dtype(kernel)
    name = module_name(*kernels)
    if name in sys.modules:
        return sys.modules[name]
    root = cache_directory().parent / "packages"
    root.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=root, prefix=".new-") as made:
        written = build(kernels[0], Path(made), *kernels[1:])
        digest = hashlib.sha256((written / name / PROVENANCE).read_bytes()).hexdigest()[:16]
        place = root / digest
        with contextlib.suppress(OSError):  # it is there: a directory is never renamed over one that has files
            Path(made).rename(place)
            Path(made).mkdir()  # for the context to remove
    sys.path.insert(0, str(place / name))
    try:
        return importlib.import_module(name)
    finally:
        sys.path.remove(str(place / name))
