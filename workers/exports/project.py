"""An exported project as files: its claims, and whether they are true. Nothing of it is run."""

from __future__ import annotations

import hashlib
import json
import tomllib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from warpsmith.kernels_db.export.kernel_facts import file_of
from warpsmith.kernels_db.export.package import PROVENANCE, restore_runtime
from warpsmith.kernels_db.spec.op import Target
from warpsmith.workers.gate.normalise import normalised_digest

TEXTS = ("name", "kernel", "target", "language", "source_digest")
"""The fields of a kernel's provenance that are text."""


class NotAnExport(Exception):  # noqa: N818 - named for what was found
    """The directory holds no package that Warpsmith exported; the message says what is missing."""


class Refused(Exception):  # noqa: N818 - named for what happens
    """A claim of the project does not hold; the message says which."""


@dataclass(frozen=True)
class Kernel:
    """A package's claims about one of its kernels."""

    name: str
    """Within the package, whose files of this kernel bear it where there are several."""
    kernel: str
    target: str
    language: str
    source_digest: str


@dataclass(frozen=True)
class Project:
    """A project directory with the package in it."""

    directory: Path
    module: str
    provenance: dict[str, Any]
    kernels: tuple[Kernel, ...]

    @property
    def package(self) -> Path:
        """The importable package's directory."""
        return self.directory / self.module

    def file(self, kernel: Kernel, stem: str, ending: str = ".json") -> str:
        """Return the package's file that holds `stem` of this kernel."""
        return file_of(kernel.name, self.kernels, stem, ending)

    def source(self, kernel: Kernel) -> str:
        """Return the kernel's source as it was judged.

        Its imports point at Warpsmith's own runtime.
        """
        return restore_runtime((self.package / self.file(kernel, "_kernel", ".py")).read_text(encoding="utf-8"))

    def load(self, name: str) -> Any:
        """Read a JSON file of the package. Raises Refused where it is none."""
        try:
            return json.loads((self.package / name).read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise Refused(f"{name}: {error}") from None


def open_project(directory: Path) -> Project:
    """Open the export in `directory`. Raises NotAnExport."""
    if not directory.is_dir():
        raise NotAnExport(f"{directory} is no directory")
    found = sorted(path.parent for path in directory.glob(f"*/{PROVENANCE}"))
    if len(found) != 1:
        expected = f"one with a {PROVENANCE}: the directory that an export made"
        raise NotAnExport(f"{directory} holds {len(found)} packages, expected {expected}")
    module = found[0].name
    try:
        provenance = json.loads((found[0] / PROVENANCE).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise NotAnExport(f"{module}/{PROVENANCE}: {error}") from None
    if not isinstance(provenance, dict):
        raise NotAnExport(f"{module}/{PROVENANCE}: found a {type(provenance).__name__}, expected an object")
    missing = {"kernels", "files"} - set(provenance)
    if missing:
        raise NotAnExport(f"{module}/{PROVENANCE} lacks {', '.join(sorted(missing))}")
    return Project(directory, module, provenance, _kernels(module, provenance))


def _kernels(module: str, provenance: dict[str, Any]) -> tuple[Kernel, ...]:
    """Read the kernels. Raises NotAnExport for a name or a field that no export has."""
    if not module.isidentifier():
        raise NotAnExport(f"found the package {module!r}, expected a name that Python can import")
    files, listed = provenance["files"], provenance["kernels"]
    if not isinstance(files, dict) or not all(isinstance(digest, str) for digest in files.values()):
        raise NotAnExport(f"{module}/{PROVENANCE}: files: expected a SHA-256 by the name of each file")
    if not isinstance(listed, list) or not listed or not all(isinstance(item, dict) for item in listed):
        raise NotAnExport(f"{module}/{PROVENANCE}: kernels: expected an object for each kernel")
    kernels = tuple(_kernel(f"{module}/{PROVENANCE}: kernels[{n}]", item) for n, item in enumerate(listed))
    if len({kernel.name for kernel in kernels}) < len(kernels):
        raise NotAnExport(f"{module}/{PROVENANCE}: kernels: found one name twice, expected each once")
    return kernels


def _kernel(where: str, said: dict[str, Any]) -> Kernel:
    if missing := set(TEXTS) - set(said):
        raise NotAnExport(f"{where} lacks {', '.join(sorted(missing))}")
    for name in TEXTS:
        found = said[name]
        if not isinstance(found, str) or not found.isprintable():
            raise NotAnExport(f"{where}.{name}: found {found!r}, expected text in one line")
    if not said["name"].isidentifier():
        raise NotAnExport(f"{where}.name: found {said['name']!r}, expected a name that Python can import")
    try:
        Target.parse(said["target"])
    except ValueError as error:
        raise NotAnExport(f"{where}.target: {error}") from None
    return Kernel(**{name: said[name] for name in TEXTS})


def check_metadata(project: Project) -> str:
    """Check that the project builds into a wheel with true metadata. Raises Refused."""
    try:
        metadata = tomllib.loads((project.directory / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    except (OSError, tomllib.TOMLDecodeError, KeyError) as error:
        raise Refused(f"pyproject.toml: {error}") from None
    wanted = project.module.replace("_", "-")
    if metadata.get("name") != wanted:
        raise Refused(f"pyproject.toml: project.name is {metadata.get('name')!r}, expected {wanted!r}")
    missing = [name for name in ("version", "license", "requires-python", "dependencies") if not metadata.get(name)]
    missing += [name for name in ("README.md", "LICENSE") if not (project.directory / name).is_file()]
    if missing:
        raise Refused(f"found no {', '.join(missing)}")
    return f"{wanted} {metadata['version']}, {metadata['license']}, needs {', '.join(metadata['dependencies'])}"


def check_contents(project: Project) -> str:
    """Check that each file of the package is the one that was exported. Raises Refused.

    There is no link.
    """
    inside = [project.package, *sorted(project.package.rglob("*"))]
    links = [path.relative_to(project.directory).as_posix() for path in inside if path.is_symlink()]
    if links:  # a copy of the package would follow those to directories, which are not looked into here
        raise Refused(f"{', '.join(links)}: found a symbolic link, expected plain files and directories")
    listed = project.provenance["files"]
    there = {
        path.relative_to(project.package).as_posix(): path
        for path in project.package.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts and path.name != PROVENANCE
    }
    changed = [name for name, path in there.items() if name in listed and listed[name] != _sha256(path.read_bytes())]
    problems = [
        *(f"{name} is missing" for name in sorted(set(listed) - set(there))),
        *(f"{name} was added" for name in sorted(set(there) - set(listed))),
        *(f"{name} was changed" for name in sorted(changed)),
    ]
    if problems:
        raise Refused(", ".join(problems))
    return f"{len(listed)} files as exported"


def check_evidence(project: Project) -> str:
    """Check that the evidence speaks of each kernel's very source. Raises Refused.

    And that its envelope speaks of this evidence.
    """
    said = []
    for kernel in project.kernels:
        try:
            said.append(_spoken_for(project, kernel))
        except (KeyError, TypeError, ValueError, SyntaxError) as error:
            names = ", ".join(project.file(kernel, stem) for stem in ("evidence", "envelope"))
            source = project.file(kernel, "_kernel", ".py")
            raise Refused(f"{source}, {names}: {type(error).__name__}: {error}") from None
    return "; ".join(said)


def _spoken_for(project: Project, kernel: Kernel) -> str:
    found, claimed = normalised_digest(project.source(kernel)), kernel.source_digest
    if found != claimed:
        source = project.file(kernel, "_kernel", ".py")
        raise Refused(f"{source} has the digest {found}, and the evidence is for {claimed}")
    evidence, envelope = (project.load(project.file(kernel, stem)) for stem in ("evidence", "envelope"))
    judged = {row["id"] for row in evidence["workloads"]}
    unproven = [shape["id"] for shape in envelope["shapes"] if shape["id"] not in judged]
    if unproven:
        raise Refused(f"the envelope names workloads that the evidence does not: {', '.join(unproven)}")
    if envelope["target"] != kernel.target:
        raise Refused(f"the envelope is for {envelope['target']}, the kernel for {kernel.target}")
    return f"for source SHA-256 {claimed}, {len(envelope['shapes'])} workloads"


FILE_CHECKS: dict[str, Callable[[Project], str]] = {
    "metadata": check_metadata,
    "contents": check_contents,
    "evidence": check_evidence,
}


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
