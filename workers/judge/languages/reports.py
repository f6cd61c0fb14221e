"""Compile reports of candidates that were prepared before, so that none is built twice."""

from __future__ import annotations

import json
from importlib import metadata
from pathlib import Path
from typing import Any

from warpsmith.kernels_db.runtime import HostError
from warpsmith.kernels_db.runtime.cache import content_key, find, publish, workspace
from warpsmith.workers.judge.languages.prepared import Prepared

_ABI = 6
"""Counts up whenever a report of the same candidate would read differently."""


def report_key(request: dict[str, Any], *packages: str) -> str:
    """Return the identity of a request under the installed versions of `packages`.

    Raises HostError where one is missing.
    """
    try:
        versions = {name: metadata.version(name) for name in packages}
    except metadata.PackageNotFoundError as error:
        raise HostError(f"{error.name} is not installed") from error
    return content_key({"abi": _ABI, "request": request, **versions})


def earlier_report(directory: Path, key: str) -> Prepared | None:
    """Return the report kept for `key`, as one that took no time; None where there is none."""
    found = find(directory, key, ".report")
    if found is None:
        return None
    report: Prepared = json.loads(found.path.read_text())
    return {**report, "seconds": 0.0, "cached": True}


def keep_report(directory: Path, key: str, report: Prepared) -> None:
    """Keep a report. Raises CompileError where the directory cannot be written."""
    with workspace(directory) as place:
        (place / "report").write_text(json.dumps(report))
        publish(directory, key, ".report", place / "report", log="", seconds=report["seconds"])
