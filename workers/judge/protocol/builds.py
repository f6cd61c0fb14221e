"""The builds of a bundle, `builds.jsonl`: read by the host that judges, and given to its judge with their jobs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import cast

from warpsmith.kernels_db.job.bundle import SignedJob
from warpsmith.kernels_db.job.carried_builds import BUILDS, CarriedBuild, CarriedLine, source_digest
from warpsmith.kernels_db.job.documents import Job
from warpsmith.kernels_db.job.strict_json import read_strictly
from warpsmith.workers.judge.protocol.answers import BadDirectory
from warpsmith.workers.judge.protocol.contract import BrokenDocument, check, short


def read_builds(directory: Path, jobs: Sequence[SignedJob]) -> dict[str, CarriedBuild]:
    """Read the builds that came with a bundle by the nonces of their jobs; none without their file.

    Raises BadDirectory for a line that is no build, or is for no job of the bundle.
    """
    path = directory / BUILDS
    if not path.is_file():
        return {}
    digests = {job["nonce"]: job["job_digest"] for job in jobs}
    found: dict[str, CarriedBuild] = {}
    wrong: list[str] = []
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise BadDirectory(f"{BUILDS}: found what cannot be read ({error}), expected text") from None
    for number, line in enumerate(lines, 1):
        try:
            document = read_strictly(line)
            check(CarriedLine, document, "")
            one = cast("CarriedLine", document)
            if digests.get(one["nonce"]) != one["job_digest"]:
                raise BrokenDocument("nonce", short(one["nonce"]), "that of a job of the bundle, with its digest")
            if one["nonce"] in found:
                raise BrokenDocument("nonce", one["nonce"], "one that no other line has")
        except (BrokenDocument, ValueError) as error:
            wrong.append(f"{BUILDS}: line {number}, {error}")
            continue
        found[one["nonce"]] = one["build"]
    if wrong:
        raise BadDirectory("\n".join(wrong))
    return found


def add_build(job: Job, build: CarriedBuild | None) -> Job:
    """Return a job with the build that came for its candidate; one whose numbers a sweep has changed has none."""
    candidate = job["candidate"]
    if build is None or candidate is None or build["source_digest"] != source_digest(candidate["source"]):
        return job
    return {**job, "candidate": {**candidate, "build": build}}
