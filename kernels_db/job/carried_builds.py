"""Builds that travel with a bundle, so that its host needs no compiler of the candidates' language.

    builds.jsonl   one CarriedLine a job: what Warpsmith's own compile step made of its candidate where the bundle was
                   written

They are as trustworthy as the jobs beside them: a judge checks that a build is for this source and target, that every
file has the digest it is said to have, and what a cubin may hold. What runs is watched as what was compiled there is.
Standard library only.
"""

from __future__ import annotations

import base64
import hashlib
import re
import zlib
from pathlib import Path
from typing import Any, NotRequired, TypedDict

from warpsmith.kernels_db.job.languages import CARRIED, LANGUAGES

BUILDS = "builds.jsonl"
MOST_BYTES = 64 << 20
"""Bytes of the files of one build."""
_NAME = re.compile(r"([0-9a-f]{2})/\1[0-9a-f]{62}\.(cubin|launches|json)")


class CarriedFile(TypedDict):
    """A file of the build cache: its place there, the SHA-256 of its bytes, and these by zlib in base64."""

    name: str
    sha256: str
    content: str


class CarriedReport(TypedDict):
    """The verdict's `compile` there. compiler: what names the compiler in the keys of the builds."""

    seconds: float
    log: str
    cached: bool
    kernels: list[dict[str, Any]]
    binaries: list[str]
    launches: list[dict[str, Any]]
    compiler: str


class CarriedRefusal(TypedDict):
    """Why a candidate does not compile: the verdict's `reason` and `failure` there."""

    reason: str
    failure: dict[str, Any]


class CarriedBuild(TypedDict):
    """What a candidate was compiled to on another host: `report` and files, or `refused` and none.

    source_digest: SHA-256 of the candidate's text. versions: of the compilers, by distribution. multiprocessors: of the
    device that host code was tried for; 0: not known.
    """

    language: str
    target: str
    source_digest: str
    versions: dict[str, str]
    multiprocessors: int
    files: list[CarriedFile]
    report: NotRequired[CarriedReport]
    refused: NotRequired[CarriedRefusal]


class CarriedLine(TypedDict):
    """One line of builds.jsonl. nonce, job_digest: of the job that the build is for."""

    nonce: str
    job_digest: str
    build: CarriedBuild


class BadBuild(ValueError):  # noqa: N818 - named for what it is
    """A build is not the one that was asked for, or not what it says of itself."""


def source_digest(source: str) -> str:
    """Return the digest by which a build names its candidate."""
    return hashlib.sha256(source.encode("utf-8", "surrogatepass")).hexdigest()


def pack_files(directory: Path) -> list[CarriedFile]:
    """Read the builds that a candidate's directory of the build cache holds, sorted by name."""
    found: list[CarriedFile] = []
    for path in sorted(directory.glob("*/*")):
        name = path.relative_to(directory).as_posix()
        if _NAME.fullmatch(name) and (path.suffix != ".json" or path.with_suffix(".cubin").is_file()):
            content = path.read_bytes()
            text = base64.b64encode(zlib.compress(content, 9)).decode()
            found.append({"name": name, "sha256": hashlib.sha256(content).hexdigest(), "content": text})
    return found


def check_build(build: CarriedBuild, language: str, source: str, target: str) -> None:
    """Raise BadBuild where a build is for another candidate, language or target, or for a language that has none."""
    if LANGUAGES[language].compiler not in CARRIED:
        raise BadBuild(f"build: found one of a candidate in {language}, expected one of {' or '.join(CARRIED)}")
    for field, found, expected in (
        ("language", build["language"], language),
        ("target", build["target"], target),
        ("source_digest", build["source_digest"], source_digest(source)),
    ):
        if found != expected:
            raise BadBuild(f"build.{field}: found {found[:100]!r}, expected {expected!r}")


def read_files(build: CarriedBuild) -> dict[str, bytes]:
    """Return a build's files by name. Raises BadBuild for a name, digest, encoding or size that is none."""
    files: dict[str, bytes] = {}
    left = MOST_BYTES
    for position, one in enumerate(build["files"]):
        where = f"build.files[{position}]"
        if not _NAME.fullmatch(one["name"]):
            raise BadBuild(f"{where}.name: found {one['name'][:100]!r}, expected the place of a build in the cache")
        try:
            reader = zlib.decompressobj()
            content = reader.decompress(base64.b64decode(one["content"], validate=True), left + 1)
        except (ValueError, zlib.error) as error:
            raise BadBuild(f"{where}.content: found what is no file by zlib in base64 ({error})") from error
        if (left := left - len(content)) < 0:
            raise BadBuild(f"{where}: found more than {MOST_BYTES} bytes with those before it, expected no more")
        if (found := hashlib.sha256(content).hexdigest()) != one["sha256"]:
            raise BadBuild(f"{where}: found a file of digest {found}, expected {one['sha256'][:100]!r}")
        files[one["name"]] = content
    return files
