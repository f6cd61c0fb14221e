"""Compile the candidates of a bundle on this machine, so that its host needs no compiler of their language.

Warpsmith's own judge compiles them, confined, as it does for a search: with its gates, for the workloads of each job.
"""

from __future__ import annotations

import json
import os
import re
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, cast

from warpsmith.kernels_db.job.bundle import SignedJob
from warpsmith.kernels_db.job.carried_builds import (
    BUILDS,
    CarriedBuild,
    CarriedLine,
    CarriedReport,
    pack_files,
    source_digest,
)
from warpsmith.kernels_db.job.documents import Job, Verdict
from warpsmith.kernels_db.job.languages import CARRIED, LANGUAGES
from warpsmith.kernels_db.runtime.limits import of_architecture
from warpsmith.workers.judge.machine.kernel_cache import kernel_cache
from warpsmith.workers.judge.protocol.client import JudgeClient, JudgeError
from warpsmith.workers.judge.protocol.directory import read_bundle, read_verifications

COMPILE_S = 600.0
_AT_ONCE = 4


class CannotBuild(RuntimeError):  # noqa: N818 - named for what is so
    """A candidate of a bundle cannot be compiled on this machine, for no fault of its own."""


def write_builds(directory: Path) -> int:
    """Compile what a bundle's jobs need and write its builds.jsonl; returns how many lines there are.

    No file is written where there are none. Raises CannotBuild, and BadDirectory for what is no bundle.
    """
    header, jobs = read_bundle(directory)
    asked: list[SignedJob] = [job for job in jobs if _has_functions(job["job"])]
    asked += [job for job in read_verifications(directory, header, jobs) if _has_functions(job["job"])]
    if not asked:
        return 0
    by_source: dict[str, list[SignedJob]] = {}
    for job in asked:
        by_source.setdefault(_source(job["job"]), []).append(job)
    with (
        tempfile.TemporaryDirectory(prefix="warpsmith-builds-") as cache,
        JudgeClient(cache=Path(cache)) as judge,
        ThreadPoolExecutor(min(_AT_ONCE, os.cpu_count() or 1)) as pool,
    ):
        groups = list(pool.map(partial(_build_all, judge, Path(cache)), by_source.values()))
    lines = [line for group in groups for line in group]
    draft = directory / f".{BUILDS}"
    draft.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    os.replace(draft, directory / BUILDS)
    return len(lines)


def _has_functions(job: Job) -> bool:
    candidate = job["candidate"]
    return candidate is not None and LANGUAGES[candidate["language"]].compiler in CARRIED


def _source(job: Job) -> str:
    assert job["candidate"] is not None
    return job["candidate"]["source"]


def _build_all(judge: JudgeClient, cache: Path, jobs: Sequence[SignedJob]) -> list[CarriedLine]:
    """Compile one candidate for each of its jobs, one after another: they share a directory of the cache."""
    return [line for job in jobs if (line := _build(judge, cache, job)) is not None]


def _build(judge: JudgeClient, cache: Path, signed: SignedJob) -> CarriedLine | None:
    """Compile the candidate of a job; None where the gate refuses it, which it does on the other host too."""
    job = signed["job"]
    candidate = job["candidate"]
    assert candidate is not None
    try:
        verdict = judge.judge(_compile_job(job), COMPILE_S)
    except JudgeError as error:
        raise CannotBuild(f"{signed['nonce']}: {error}") from error
    refused = verdict["verdict"] == "rejected"
    if refused and verdict["gate"] != "compile":
        return None
    report, failure = verdict["compile"], verdict["failure"]
    compiled = report is not None and failure is None
    if not compiled and not (refused and failure is not None):
        raise CannotBuild(f"{signed['nonce']}: {verdict['reason']}")
    limits = of_architecture(int(re.sub(r"\D", "", job["target"])))
    build: CarriedBuild = {
        "language": candidate["language"],
        "target": job["target"],
        "source_digest": source_digest(candidate["source"]),
        "versions": _compilers(verdict, candidate["language"]),
        "multiprocessors": limits.multiprocessors if limits else 0,
        "files": [] if refused else pack_files(kernel_cache(cache, candidate["source"])),
    }
    if refused:
        build["refused"] = {"reason": verdict["reason"], "failure": {**cast("dict[str, Any]", failure)}}
    else:
        build["report"] = cast("CarriedReport", report)
    return {"nonce": signed["nonce"], "job_digest": signed["job_digest"], "build": build}


def _compile_job(job: Job) -> Job:
    """Return the job that compiles a candidate for the calls that a judge of the other host makes of it."""
    workloads = [one for one in job["workloads"] if job["level"] != "screen" or one["role"] == "bench"]
    workloads.sort(key=lambda one: one["role"] == "holdout")  # what first appears there appeared on no other
    bench: Job = {**job, "level": "compile", "workloads": [{**one, "role": "bench"} for one in workloads]}
    bench.pop("known_binaries", None)
    return bench


def _compilers(verdict: Verdict, language: str) -> dict[str, str]:
    """Return the versions of the distributions that compiled a candidate."""
    named = LANGUAGES[language].requirements
    return {name: number for name, number in verdict["versions"].items() if name in named}
