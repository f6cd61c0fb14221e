"""Unpacking of exports: zip archives from the service, trusted no more than any archive."""

from __future__ import annotations

import hashlib
import io
import json
import stat
import zipfile
from collections.abc import Callable, Collection, Mapping
from pathlib import Path, PurePosixPath

from warpsmith.kernels_db.export.package import BESIDE, PROVENANCE
from warpsmith.workers.exports import report
from warpsmith.workers.exports.project import NotAnExport, Refused, check_contents, open_project

LARGEST_FILE_BYTES = 64 * 2**20
LARGEST_TOTAL_BYTES = 256 * 2**20
MOST_FILES = 1000


class ArchiveError(ValueError):
    """The archive is refused; nothing was written."""


def unpack(
    content: bytes, directory: Path, *, replace: bool = False, told: Callable[[str], None] | None = None
) -> list[Path]:
    """Write the archive's files under `directory` and return their paths.

    A package of the same import name and another version that is as it was exported is replaced; `told` says so.

    Refused whole, before anything is written: content that is no zip archive; names that lead out of `directory`;
    links; archives that grow beyond 1,000 files, 64 MiB a file or 256 MiB in all; a file where a directory has to be;
    and, unless `replace`, files that exist with another content, and a directory of the export's name that holds
    anything else than the export and its verification.
    """
    try:
        archive = zipfile.ZipFile(io.BytesIO(content))
    except zipfile.BadZipFile as error:
        raise ArchiveError(f"archive: found something else ({error}), expected a zip archive") from None
    with archive:
        entries = [entry for entry in archive.infolist() if not entry.is_dir()]
        if len(entries) > MOST_FILES or sum(entry.file_size for entry in entries) > LARGEST_TOTAL_BYTES:
            raise ArchiveError(f"archive: found {len(entries)} files, expected at most {MOST_FILES} and 256 MiB in all")
        files = {_resolve_path(entry, directory): _read_entry(archive, entry) for entry in entries}
    for place in dict.fromkeys(place for path in files for place in path.parents):
        if place.exists() and not place.is_dir():
            raise ArchiveError(f"output: found {place}, which is a file, expected a directory or nothing yet")
    older = _find_older(files, directory)
    if not replace:
        for path, data in files.items():
            if path not in older and path.exists() and (not path.is_file() or path.read_bytes() != data):
                raise ArchiveError(
                    f"output: found {path} with another content, expected a new file; give --force to replace it"
                )
        _refuse_other_files({*files, *older}, directory)
    for path, said in older.items():
        path.unlink()
        if said and told is not None:
            told(said)
    for path, data in files.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    return sorted(files)


def _find_older(files: Mapping[Path, bytes], directory: Path) -> dict[Path, str]:
    """Return the files of packages that new versions in `files` replace; beside one of each, what is said of it.

    Such a package has only files that were exported, none of which was changed, and those of its verification.
    """
    older: dict[Path, str] = {}
    for name in {path.relative_to(directory).parts[0] for path in files}:
        root = directory / name
        try:
            there = open_project(root)
            new = json.loads(files[there.package / PROVENANCE])["version"]
            check_contents(there)
            changed = [one for one in BESIDE if _sha256(root / one) != there.provenance["beside"][one]]
            old = there.provenance["version"]
        except (NotAnExport, Refused, OSError, KeyError, AttributeError, TypeError, ValueError):
            continue  # no package, one of before packages had versions, or one that was changed
        if changed or old == new:
            continue
        of_package = (path for path in sorted(there.package.rglob("*")) if "__pycache__" not in path.parts)
        ours = [*of_package, *(root / one for one in (*BESIDE, *report.NAMES))]
        older |= dict.fromkeys((path for path in ours if path.is_file() and not path.is_symlink()), "")
        older[there.package / PROVENANCE] = f"{name}: {new} in place of {old}"
    return older


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _refuse_other_files(files: Collection[Path], directory: Path) -> None:
    """Raise where a directory that the archive would fill holds other files."""
    for name in {path.relative_to(directory).parts[0] for path in files}:
        root = directory / name
        ours = {*files, *(root / name for name in report.NAMES)}
        for path in sorted(root.rglob("*")) if root.is_dir() else ():
            if path not in ours and not path.is_dir() and "__pycache__" not in path.parts:
                raise ArchiveError(
                    f"output: found {path}, which is not of this export, expected a directory of its own; give --force "
                    "to write beside it"
                )


def _resolve_path(entry: zipfile.ZipInfo, directory: Path) -> Path:
    name = PurePosixPath(entry.filename)
    outside = (
        name.is_absolute() or ".." in name.parts or "\\" in entry.filename or ":" in entry.filename or not name.parts
    )
    kind = stat.S_IFMT(entry.external_attr >> 16)
    if outside or kind not in {0, stat.S_IFREG}:
        raise ArchiveError(f"archive: found the entry {entry.filename!r}, expected plain files inside the package")
    path = directory.joinpath(*name.parts)
    if not path.resolve().is_relative_to(directory.resolve()):
        raise ArchiveError(f"output: found a link that leads {path} out of {directory}, expected a plain directory")
    return path


def _read_entry(archive: zipfile.ZipFile, entry: zipfile.ZipInfo) -> bytes:
    # The header may lie about the size: read no more than is allowed.
    with archive.open(entry) as file:
        data = file.read(LARGEST_FILE_BYTES + 1)
    if len(data) > LARGEST_FILE_BYTES:
        raise ArchiveError(f"archive: found {entry.filename!r} above 64 MiB, expected less")
    return data
