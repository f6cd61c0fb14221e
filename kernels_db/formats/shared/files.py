"""The files of an import: checks, and a spec's `origin` that keeps and returns them.

Nothing here runs a file's code.
"""

from __future__ import annotations

import base64
import binascii
import posixpath
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from warpsmith.kernels_db.spec.errors import SpecError, SpecErrors
from warpsmith.kernels_db.spec.schema import Origin

MOST_FILES = 64
MOST_BYTES = 512 * 1024
"""Bytes of all files of one import.

The spec that keeps them may have 1 MiB, and says much of it twice.
"""


MOST_PARSED_BYTES = 128 * 1024
"""Bytes of the Python and YAML files among them, which take the longest to read."""

PARSED = (".py", ".yml", ".yaml")


@dataclass(frozen=True)
class RawFile:
    """One file as it came. `path` is relative to the set, with `/` between its parts."""

    path: str
    data: bytes

    def text(self) -> str:
        """Return the content as UTF-8 text, with a leading byte order mark; raises SpecErrors."""
        try:
            return self.data.decode("utf-8")
        except UnicodeDecodeError as error:
            raise refused(
                self.path, f"byte {self.data[error.start]:#04x} at offset {error.start}", "UTF-8 text"
            ) from None


def refused(field: str, found: object, expected: str) -> SpecErrors:
    """Return the error of one field of an import."""
    return SpecErrors([SpecError(field, found, expected)])


def check_files(files: Sequence[RawFile]) -> None:
    """Raise SpecErrors where a set of files is not acceptable.

    It is empty, too large, names a path twice or a path outside itself.
    """
    if not 1 <= len(files) <= MOST_FILES:
        raise refused("files", f"{len(files)} files", f"1 to {MOST_FILES} files")
    total = sum(len(file.data) for file in files)
    if total > MOST_BYTES:
        raise refused("files", f"{total} bytes", f"at most {MOST_BYTES} bytes ({MOST_BYTES >> 10} KiB) in all")
    parsed = sum(len(file.data) for file in files if file.path.endswith(PARSED))
    if parsed > MOST_PARSED_BYTES:
        expected = f"at most {MOST_PARSED_BYTES} bytes ({MOST_PARSED_BYTES >> 10} KiB) of Python and YAML in all"
        raise refused("files", f"{parsed} bytes of Python and YAML", expected)
    seen: set[str] = set()
    for position, file in enumerate(files):
        field = f"files[{position}].path"
        if not is_inside(file.path):
            raise refused(field, file.path, "a relative path of at most 1024 characters, without . and .. in it")
        if file.path in seen:
            raise refused(field, file.path, "a path that no other file has")
        seen.add(file.path)


def is_inside(path: str) -> bool:
    """Check whether a path stays below its base directory, on every system."""
    parts = path.split("/")
    return (
        0 < len(path) <= 1024
        and path.isprintable()
        and "\\" not in path
        and ":" not in parts[0]
        and all(part not in ("", ".", "..") for part in parts)
    )


def beside(path: str, reference: str) -> str:
    """Return the place in the set of `reference`, relative to the file at `path`.

    It may begin with .. and so lie outside.
    """
    return posixpath.normpath(posixpath.join(posixpath.dirname(path), reference))


def stem(path: str) -> str:
    """Return a file's name without directories and its last ending."""
    return posixpath.splitext(posixpath.basename(path))[0]


def origin_of(format_name: str, files: Iterable[RawFile]) -> dict[str, Any]:
    """Return the `origin` of a spec: the files as they came."""
    return {"format": format_name, "files": [_kept(file) for file in files]}


def _kept(file: RawFile) -> dict[str, str]:
    try:
        text = file.data.decode("utf-8")
    except UnicodeDecodeError:
        text = "\0"
    if "\0" in text:  # no database keeps it in a text
        return {"path": file.path, "base64": base64.b64encode(file.data).decode("ascii")}
    return {"path": file.path, "text": text}


def raw_files(origin: Origin) -> list[RawFile]:
    """Return the files of an import, byte for byte.

    Raises SpecErrors where a spec's origin holds something that is no file.
    """
    files = []
    for position, kept in enumerate(origin.files):
        if kept.text is not None:
            files.append(RawFile(kept.path, kept.text.encode("utf-8")))
            continue
        try:
            files.append(RawFile(kept.path, base64.b64decode(kept.base64 or "", validate=True)))
        except (binascii.Error, ValueError):
            raise refused(f"origin.files[{position}].base64", kept.base64, "base64") from None
    check_files(files)
    return files
