"""Packages of the kernels that ship, built into the user's cache."""

from __future__ import annotations

import contextlib
import hashlib
import tempfile
from pathlib import Path

from warpsmith.kernels_db.export.dtypes import of_each_dtype
from warpsmith.kernels_db.export.kernel import ExportedKernel, module_name
from warpsmith.kernels_db.export.package import PROVENANCE, build
from warpsmith.kernels_db.library import Entry, read_entry
from warpsmith.kernels_db.runtime.cache import cache_directory


def package_of(directory: Path, target: str) -> list[str] | None:
    """Read the entry of a kernel that ships and build its package; returns its place as `_package` does.

    None for a kernel of another target. Raises BrokenEntry.
    """
    entry = read_entry(directory)
    return _package(_exported(entry)) if entry.target == target else None


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


def _package(kernel: ExportedKernel) -> list[str]:
    """Write a kernel's package into the cache, under a digest of all its files; returns its parent and its name."""
    kernels = of_each_dtype(kernel)
    name = module_name(*kernels)
    root = cache_directory().parent / "packages"
    root.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=root, prefix=".new-") as made:
        written = build(kernels[0], Path(made), *kernels[1:])
        place = root / hashlib.sha256((written / name / PROVENANCE).read_bytes()).hexdigest()[:16]
        with contextlib.suppress(OSError):  # it is there: a directory is never renamed over one that has files
            Path(made).rename(place)
            Path(made).mkdir()  # for the context to remove
    return [str(place / name), name]
