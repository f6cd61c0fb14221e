"""The kernels that ship with Warpsmith.

Each is a directory in the `library` export format, read and checked against its digests.
`warpsmith.kernels_db.library.seed_library` puts them into a database; `python -m benchmarks.library` judges
them again.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from warpsmith.kernels_db.export.library import CANDIDATE, FILES, FORMAT, KERNEL, OP, VERDICT, VERSION
from warpsmith.kernels_db.spec.op import Op, parse_op

SHIPPED = Path(__file__).parent
FIELDS: dict[str, type] = {
    **dict.fromkeys(("id", "target", "language", "source_digest", "candidate_sha256", "verdict_sha256"), str),
    "verified_at": str,
    "envelope": dict,
    "lineage": list,
    "prompts": list,
}
"""The fields that kernel.json must have."""


class BrokenEntry(ValueError):  # noqa: N818 - named for what is wrong
    """An entry that is not as it was exported.

    The message names the file, and what was found and expected.
    """


@dataclass(frozen=True)
class Entry:
    """One kernel of a library.

    op: its spec; document: kernel.json; evidence: the verify verdict, whole.
    """

    directory: Path
    op: Op
    source: str
    document: dict[str, Any]
    evidence: dict[str, Any]

    @property
    def target(self) -> str:
        """The target that it was verified for, such as cuda:sm_90."""
        return str(self.document["target"])

    @property
    def language(self) -> str:
        """A gated one of `kernels_db.job.languages`."""
        return str(self.document["language"])

    @property
    def verified_at(self) -> float:
        """When its evidence was made, in seconds since the epoch."""
        return datetime.fromisoformat(self.document["verified_at"]).timestamp()


def entries(library: Path = SHIPPED) -> Iterator[Entry]:
    """Yield the kernels of a library, by the name of their directories.

    A directory with none of an entry's files is none: an update that takes one away may leave its directory, with
    the files that Python compiled. Raises BrokenEntry.
    """
    for directory in sorted(library.iterdir()):
        if directory.is_dir() and any((directory / name).exists() for name in FILES):
            yield read_entry(directory)


def read_entry(directory: Path) -> Entry:
    """Read one kernel.

    Raises BrokenEntry where a file is missing or is not the one that was exported.
    """
    document = _kernel(directory / KERNEL)
    for name in (CANDIDATE, VERDICT):
        digest = hashlib.sha256(_text(directory / name).encode()).hexdigest()
        expected = document[f"{Path(name).stem}_sha256"]
        if digest != expected:
            raise BrokenEntry(f"{directory / name}: found SHA-256 {digest}, expected {expected}")
    evidence = _document(directory / VERDICT)
    said = {name: evidence.get(name) for name in ("target", "language", "level", "verdict")}
    wanted = {"target": document["target"], "language": document["language"], "level": "verify", "verdict": "accepted"}
    if said != wanted:
        raise BrokenEntry(f"{directory / VERDICT}: found {said}, expected {wanted}")
    try:
        op = parse_op(_document(directory / OP))
    except ValueError as error:
        raise BrokenEntry(f"{directory / OP}: {error}") from None
    if op.digest != document["envelope"].get("op_digest"):
        raise BrokenEntry(f"{directory / OP}: found the op {op.digest}, expected the envelope's")
    return Entry(directory, op, _text(directory / CANDIDATE), document, evidence)


def _kernel(file: Path) -> dict[str, Any]:
    document = _document(file)
    found = (document.get("format"), document.get("version"))
    if found != (FORMAT, VERSION):
        raise BrokenEntry(f"{file}: found {found}, expected {(FORMAT, VERSION)}")
    for name, kind in FIELDS.items():
        if not isinstance(document.get(name), kind):
            raise BrokenEntry(f"{file}: {name}: found {document.get(name)!r}, expected {kind.__name__}")
    try:
        datetime.fromisoformat(document["verified_at"])
    except ValueError as error:
        raise BrokenEntry(f"{file}: verified_at: {error}") from None
    return document


def _document(file: Path) -> dict[str, Any]:
    try:
        found = json.loads(_text(file))
    except json.JSONDecodeError as error:
        raise BrokenEntry(f"{file}: found no JSON ({error}), expected an object") from None
    if not isinstance(found, dict):
        raise BrokenEntry(f"{file}: found {type(found).__name__}, expected an object")
    return found


def _text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise BrokenEntry(f"{file}: found {error}, expected a file of a library entry") from None
