"""Imports files of another format as an op: recognises the format and reads the spec.

A file of no known format, or of two, is refused; the error says what was found in it and what is expected.
"""

from __future__ import annotations

import json
import posixpath
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from warpsmith.kernels_db.formats.flashinfer import definition, objects
from warpsmith.kernels_db.formats.gpu_mode import task
from warpsmith.kernels_db.formats.kernelbench import problem
from warpsmith.kernels_db.formats.robust_kbench import task as robust_task
from warpsmith.kernels_db.formats.shared import python_source
from warpsmith.kernels_db.formats.shared.files import RawFile, check_files, refused
from warpsmith.kernels_db.formats.shared.imported_op import Imported
from warpsmith.kernels_db.job.file_analysis import Analyse
from warpsmith.kernels_db.spec.document import MAX_BYTES, read_document
from warpsmith.kernels_db.spec.errors import SpecErrors
from warpsmith.kernels_db.spec.op import Op, parse_op


class Format(NamedTuple):
    """One format: its expectation of files, and its functions, as its module says them."""

    expected: str
    claim: Callable[[RawFile], str | None]
    references: Callable[[Sequence[RawFile]], list[str]]
    read: Callable[[Sequence[RawFile], Analyse | None], Imported]


FORMATS: Mapping[str, Format] = {
    module.FORMAT: Format(module.EXPECTED, module.claim, module.references, module.read)
    for module in (problem, definition, task, robust_task)
}


@dataclass(frozen=True)
class ImportedOp:
    """An op from files.

    `notes` are for the reader; `sandbox` is the level at which the files were run, None where nothing was; `sizes` are
    those of the file with which the op was compared with it, none where it was at its own. `small` is the op with them,
    without an origin, for who wants to run it where its own sizes are too large; None without.
    """

    op: Op
    format: str
    notes: list[str]
    sandbox: str | None
    sizes: dict[str, int] = field(default_factory=dict)
    small: Op | None = None


def recognise(files: Sequence[RawFile]) -> str:
    """Return the format of a set of files. Raises SpecErrors where it is none, or more than one."""
    check_files(files)
    claims = {
        name: found
        for name, known in FORMATS.items()
        if (found := [f"{file.path} has {claim}" for file in files if (claim := known.claim(file))])
    }
    if len(claims) == 1:
        return next(iter(claims))
    if claims:
        said = "; ".join(f"{name}: {', '.join(evidence)}" for name, evidence in claims.items())
        raise refused("format", said, f"files of one format, or the format named: one of {', '.join(FORMATS)}")
    for file in files:
        _check_readable(file)
        if _is_spec(file):
            raise refused("format", f"{file.path}: an op spec", "a problem of another project; a spec needs no import")
    paths = ", ".join(file.path for file in files[:5])
    expected = "; or ".join(f"{name}: {known.expected}" for name, known in FORMATS.items())
    raise refused("format", f"{paths}: of no known format", expected)


def _is_spec(file: RawFile) -> bool:
    """Check whether a readable file has the fields of our own spec."""
    if not file.path.endswith((".json", ".yml", ".yaml")):
        return False
    try:
        document = read_document(file.data)
    except SpecErrors:
        return False
    return isinstance(document, dict) and {"schema_version", "inputs", "reference"} <= document.keys()


def _check_readable(file: RawFile) -> None:
    """Raise SpecErrors where a file is broken.

    That helps more than an error about an unknown format.
    """
    if file.path.endswith(".py"):
        python_source.parse(file)
    elif file.path.endswith((".json", ".jsonl")):
        list(objects.objects(file))
    elif file.path.endswith((".yml", ".yaml")):
        task.read_task(file)


def import_op(files: Sequence[RawFile], format_name: str | None, analyse: Analyse | None) -> ImportedOp:
    """Import the op from files of a format. Raises SpecErrors.

    Where `format_name` is None, the format is recognised.
    """
    check_files(files)
    chosen = format_name or recognise(files)
    if chosen not in FORMATS:
        raise refused("format", chosen, f"one of {', '.join(FORMATS)}")
    found = FORMATS[chosen].read(files, analyse)
    document = _stated(found.document)
    if (size := len(json.dumps(document))) > MAX_BYTES:
        raise refused("files", f"files whose spec has {size} bytes", f"a spec of at most {MAX_BYTES} bytes (1 MiB)")
    small = None if found.small is None else parse_op(_stated(found.small))
    return ImportedOp(parse_op(document), chosen, found.notes, found.sandbox, found.sizes, small)


def _stated(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return the document without fields that say nothing."""
    return {name: value for name, value in document.items() if value is not None}


def wanted(files: Sequence[RawFile], format_name: str | None) -> list[str]:
    """Return the paths that files of one format name and that are not among them.

    They may lie outside the set (`..`).
    """
    there = {file.path for file in files}
    chosen = FORMATS[format_name or recognise(files)]
    named = dict.fromkeys(posixpath.normpath(path) for path in chosen.references(files))
    return [path for path in named if path not in there]
