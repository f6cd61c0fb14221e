"""One stored kernel as plain values, the input of every exporter, and names made from it."""

from __future__ import annotations

import functools
import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path, PurePosixPath
from typing import Any

from warpsmith.kernels_db.job.documents import ResolvedWorkload
from warpsmith.kernels_db.job.languages import LANGUAGES
from warpsmith.kernels_db.spec.op import Op, Target, parse_op
from warpsmith.kernels_db.spec.resolve import resolve_workload

NAME_PREFIX = "warpsmith_"
LONGEST_NAME = 80
NAME = re.compile(rf"(?=.{{1,{LONGEST_NAME}}}\Z){NAME_PREFIX}[a-z0-9][a-z0-9_]*")
"""Import names that a user may give an export.

The name is that of the package, of its namespace in `torch.ops` and, in capitals, of its environment variable; the
prefix keeps all three apart from those of others.
"""
RESERVED = frozenset(
    {"carried_builds", "kernel_cache", "kernels", "plan_graphs", "plans", "shadow_dir", "shadow_every", "watch"}
)
"""Names whose variable is one that packages read for something else."""


@dataclass(frozen=True)
class ExportedKernel:
    """A stored kernel as exporters need it; plain values, so that exporters know no tables."""

    id: str
    spec: dict[str, Any]
    target: str
    language: str
    source: str
    source_digest: str
    envelope: dict[str, Any]
    evidence: dict[str, Any]
    lineage: list[dict[str, Any]]
    verified_at: str = ""
    """ISO 8601, UTC; empty where it is not known."""
    prompts: list[dict[str, Any]] = field(default_factory=list)
    """The calls to the model on the way here: {"kind", "provider", "model", "prompt"}.

    The last is a SHA-256 (hex).
    """
    leads: tuple[dict[str, int], ...] | None = None
    """Of a further configuration of a kernel (`configurations.py`): the var axes of the shapes that it is to serve.

    Elsewhere it leaves calls to the others. None for a kernel of its own.
    """

    @functools.cached_property
    def op(self) -> Op:
        """The op of `spec`, read once. Raises SpecErrors where it is none."""
        return parse_op(self.spec)


def module_name(*kernels: ExportedKernel) -> str:
    """Return the name of the package, its op namespace and its directory.

    It holds a hash of all that decides the op's behaviour: reference, source and envelope of each kernel, in
    whatever order they are given. Two exports of one op that differ in any of them can be loaded side by side.
    """
    return f"warpsmith_{kernels[0].spec['name']}_{_joint_digest(kernels)[:8]}"


def export_version(*kernels: ExportedKernel) -> str:
    """Return the version of an export (PEP 440): `2026.11.26.45296+1f413f10`.

    It is made of the day (UTC) and the second of the day on which the latest of the kernels was verified, and of the
    hash of `module_name`. A kernel that was verified later is thus a later version under the same name. `0` is in
    place of an unknown time.
    """
    moments = [datetime.fromisoformat(kernel.verified_at) for kernel in kernels if kernel.verified_at]
    version = "0"
    if moments:
        latest = max(moment.astimezone(UTC) for moment in moments)
        seconds = latest.hour * 3600 + latest.minute * 60 + latest.second
        version = f"{latest.year}.{latest.month}.{latest.day}.{seconds}"
    return f"{version}+{_joint_digest(kernels)[:8]}"


def check_name(name: str) -> str | None:
    """Return what is expected in place of an import name that no export may have; None for a good one."""
    if not NAME.fullmatch(name):
        return f"{NAME_PREFIX} and then lower case letters, digits and underscores, at most {LONGEST_NAME} in all"
    if name.removeprefix(NAME_PREFIX) in RESERVED:
        return f"another name: {name.upper()} is a variable that every export reads"
    return None


def kernel_name(kernel: ExportedKernel) -> str:
    """Return a kernel's name within its package.

    It is made of language, architecture, and a hash as in `module_name`.
    """
    return f"{kernel.language}_{Target.parse(kernel.target).arch}_{_digest(kernel)[:8]}"


def _joint_digest(kernels: Sequence[ExportedKernel]) -> str:
    digests = sorted(_digest(kernel) for kernel in kernels)
    return digests[0] if len(digests) == 1 else hashlib.sha256("".join(digests).encode()).hexdigest()


def _digest(kernel: ExportedKernel) -> str:
    decisive: list[Any] = [kernel.envelope, kernel.language, kernel.source_digest]
    decisive += [] if kernel.leads is None else [kernel.leads]
    return hashlib.sha256(json.dumps(decisive, sort_keys=True).encode()).hexdigest()


MINOR_VERSIONS = {"gluon": ("triton", 2), "cute": ("nvidia-cutlass-dsl", 2), "tilelang": ("tilelang", 3)}
"""Languages whose kernels are built by one version of a library alone, as its distribution is named, and how many
numbers of the version that is."""


def runtime_needs(kernels: Sequence[ExportedKernel]) -> list[str]:
    """Return the requirements of the kernels' languages, beside torch.

    Gluon's names change from one minor version of Triton to the next, CuTe DSL's from one of its own, and TileLang's
    with each release (0.1.15), so such kernels ask for the one that all of them were verified with. Where they were
    verified with several, no version suits all: then any is asked for, and each kernel serves under its own alone
    (`package_files/_guard.py`).
    """
    pinned = {}
    for language, (library, parts) in MINOR_VERSIONS.items():
        found = {
            tuple(str(kernel.envelope.get("versions", {}).get(library, "")).split(".")[:parts])
            for kernel in kernels
            if kernel.language == language
        }
        release = found.pop() if len(found) == 1 else ()
        if len(release) == parts:
            pinned[library] = f"{library}=={'.'.join(release)}.*"
    needs = [need for kernel in kernels for need in LANGUAGES[kernel.language].requirements]
    return list(dict.fromkeys(pinned.get(need, need) for need in needs))


def verified_workloads(kernel: ExportedKernel) -> list[ResolvedWorkload]:
    """Return the op's workloads that the kernel's envelope names, resolved."""
    op = kernel.op
    verified = {shape["id"] for shape in kernel.envelope["shapes"]}
    return [resolve_workload(op, w) for w in op.workloads_for(Target.parse(kernel.target)) if w.id in verified]


def attribute_source(attribute: str) -> str:
    """Return Python source that reads a module's parameter or buffer.

    It is named by its key in `state_dict()`: `self.linear.weight`.
    """
    source = "self"
    for part in attribute.split("."):
        source = f"{source}.{part}" if part.isidentifier() else f"getattr({source}, {part!r})"
    return source


def write_project(directory: Path, name: str, files: Mapping[str, str]) -> Path:
    """Write `files`, text by path, into the new directory `name` below `directory`; return it.

    Raises FileExistsError where it exists: an export never overwrites what may have been changed. Raises ValueError,
    before anything is written, for a path that leads out of the project.
    """
    project = directory / name
    for path in files:
        if PurePosixPath(path).is_absolute() or ".." in PurePosixPath(path).parts:
            raise ValueError(f"found the path {path!r}, expected one inside {name}")
    project.mkdir(parents=True)
    for path, text in files.items():
        destination = project / path
        destination.parent.mkdir(parents=True, exist_ok=True)
        destination.write_text(text, encoding="utf-8")
    return project
