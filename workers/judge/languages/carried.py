"""Candidates that were compiled on another host: their builds came with the job (`kernels_db.job.carried_builds`).

Nothing of the candidate runs here before it runs in its runner, and nothing is compiled.
"""

from __future__ import annotations

import hashlib
import json
import re
import unicodedata
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch

from warpsmith.kernels_db.job.bundle import digest
from warpsmith.kernels_db.job.carried_builds import BadBuild, CarriedBuild, check_build, read_files
from warpsmith.kernels_db.runtime import HostError
from warpsmith.kernels_db.runtime.cutedsl_build import CARRIED_VARIABLE
from warpsmith.workers.judge.languages import cubin
from warpsmith.workers.judge.languages.elf import digests
from warpsmith.workers.judge.machine.cubin_symbols import own_variables

_KEY = re.compile(r"[0-9a-f]{64}")
_ASKS_FOR_SIZE = "multi_processor_count"


class Refused(Exception):  # noqa: N818 - named for what happened
    """The candidate did not compile on the other host. The message is its reason there, `failure` the verdict's."""

    def __init__(self, reason: str, failure: dict[str, Any]) -> None:
        super().__init__(reason)
        self.failure = failure


def unpack(build: CarriedBuild, language: str, source: str, target: str, directory: Path) -> dict[str, Any]:
    """Put a build's files where the candidate's runner finds them; returns the compile report that came with it.

    Raises Refused, and HostError where the build is for something else, was altered, or holds what a cubin may not.
    """
    try:
        check_build(build, language, source, target)
        files = read_files(build)
    except BadBuild as error:
        raise HostError(str(error)) from error
    if "refused" in build:
        raise Refused(build["refused"]["reason"], build["refused"]["failure"])
    report = build.get("report")
    if report is None or not _KEY.fullmatch(report["compiler"]):
        raise HostError("build.report: found none with the key of its compiler, expected one")
    cubins = {name: content for name, content in files.items() if name.endswith(".cubin")}
    _check_cubins(cubins, language)
    _check_launches(files, cubins)
    if missing := set(report["binaries"]).difference(digests(cubins.values())):
        raise HostError(f"build.report.binaries: found {min(missing)[:100]}, expected digests of cubins in its files")
    if _ASKS_FOR_SIZE in unicodedata.normalize("NFKC", source) and torch.cuda.is_available():
        here = torch.cuda.get_device_properties(0).multi_processor_count
        if here != build["multiprocessors"]:
            raise HostError(
                f"build.multiprocessors: found {build['multiprocessors']}, expected this device's {here}, which `run` "
                "asks for: install the language's compiler on this host"
            )
    for name, content in files.items():
        path = directory / name
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        path.write_bytes(content)
    return dict(report)


def variables(build: CarriedBuild) -> dict[str, str]:
    """Return the variable by which a runner takes builds from the cache, and its language's names from stand-ins."""
    return {CARRIED_VARIABLE: build["report"]["compiler"]}


def directory_of(build: CarriedBuild, directory: Path) -> Path:
    """Return the directory for a build: another than for what is compiled here of the same source."""
    return directory.with_name(hashlib.sha256(f"{directory.name}\0{digest(build)}".encode()).hexdigest()[:32])


def _check_launches(files: dict[str, bytes], cubins: Iterable[str]) -> None:
    """Raise HostError where a cubin lacks the text of its launches, or that text is no list of JSON objects."""
    for name in cubins:
        beside = name.removesuffix(".cubin") + ".launches"
        try:
            launches = json.loads(files.get(beside, b""))
        except ValueError as error:
            raise HostError(f"build.files: found no launches in {beside} ({error})") from error
        if not isinstance(launches, list) or not all(isinstance(one, dict) for one in launches):
            raise HostError(f"build.files: {beside}: found {str(launches)[:100]}, expected a list of launches")


def _check_cubins(cubins: dict[str, bytes], language: str) -> None:
    """Raise HostError where a cubin holds what the compile step refuses."""
    for name, code in cubins.items():
        try:
            refused = cubin.refusal(code)
            own = own_variables(code) if language == "tilelang" else []
        except ValueError as error:
            raise HostError(f"build.files: found no cubin in {name} ({error})") from error
        if refused or own:
            raise HostError(
                f"build.files: {name}: {refused or f'it has the device variable {own[0]!r}, expected none'}"
            )
