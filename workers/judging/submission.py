"""From an op, a candidate and a place to the job that a judge reads.

One way for all who submit jobs: the API, the command line, MCP, and the workers of a queue.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast, get_args

from warpsmith.kernels_db.job.documents import Job, JobCandidate, JobLimits, Level, SandboxLevel
from warpsmith.kernels_db.job.languages import LANGUAGES
from warpsmith.kernels_db.spec.near_misses import one_of
from warpsmith.kernels_db.spec.op import Op, SpecError, Target, Workload, load_op, parse_op
from warpsmith.kernels_db.spec.resolve import DEFAULT_LIMITS, build_job, limits_with
from warpsmith.workers.judging.targets import Place
from warpsmith.workers.settings import Settings

LEVELS: tuple[str, ...] = tuple(level for level in get_args(Level) if level != "baseline")
"""Levels of a job with a candidate."""


@dataclass(frozen=True)
class Candidate:
    """A candidate's language and source.

    `format` and `notes`: of the file that it was rewritten from, where it was.
    """

    language: str
    source: str
    format: str | None = None
    notes: tuple[str, ...] = ()


def read_op(given: Op | Mapping[str, Any] | str | os.PathLike[str]) -> Op:
    """Read an op: itself, its document, its YAML or JSON text, or the path of a file with it.

    A string of one line is a path, unless it begins with a brace. Raises SpecErrors with every bad field, SpecError for
    what is none of these, OSError for a file that cannot be read.
    """
    if isinstance(given, Op):
        return given
    if isinstance(given, Mapping):
        return parse_op(dict(given))
    if isinstance(given, str) and ("\n" in given or given.lstrip().startswith("{")):
        return load_op(given)
    if not isinstance(given, str | os.PathLike):
        raise SpecError("op", f"a {type(given).__name__}", "an Op, a path, YAML or JSON text, or a mapping")
    if not (path := Path(given)).is_file():
        raise SpecError("op", os.fspath(given), "a file that exists, or an op spec as text of more than one line")
    return load_op(path)


def candidate_job(
    op: Op, candidate: Candidate, place: Place, *, level: str, workloads: Sequence[str] | None, limits: JobLimits
) -> Job:
    """Build the job that judges a candidate on a place.

    `workloads`: ids, or None for those that the level takes. Raises SpecError and SpecErrors, which name the field.
    """
    if level not in LEVELS:
        raise SpecError("level", level, one_of(level, LEVELS))
    return build_job(
        op,
        place.target,
        level=cast("Level", level),
        candidate=cast("JobCandidate", {"language": candidate.language, "source": candidate.source}),
        workloads=_choose_workloads(op, candidate, place, level, workloads),
        limits=limits,
    )


def op_job(op: Op, target: str, limits: JobLimits) -> Job:
    """Build the job that examines an op by itself. Raises SpecError and SpecErrors."""
    return build_job(op, Target.parse(target), level="baseline", limits=limits)


def record_job(
    op: Mapping[str, Any],
    target: str,
    level: Level,
    candidate: tuple[str | None, str | None] | None,
    limits: JobLimits,
    tests: Collection[str] | None = (),
) -> Job:
    """Build the job of stored rows: an op's document, a target, and a candidate's language and source.

    `tests`: ids of test workloads that a screening or a compilation has besides the bench ones, None for all of them.
    Raises SpecErrors where the op asks for what the judge cannot do.
    """
    spec, device = parse_op(op), Target.parse(target)
    named = None if candidate is None else dict(zip(("language", "source"), candidate, strict=True))
    chosen = None
    if level in ("screen", "compile") and (tests is None or tests):
        chosen = [
            one
            for one in spec.workloads_for(device)
            if one.role == "bench" or (one.role == "test" and (tests is None or one.id in tests))
        ]
    return build_job(
        spec,
        device,
        level=level,
        candidate=cast("JobCandidate | None", named),
        workloads=chosen,
        limits=limits,
    )


def limits_of(settings: Settings) -> JobLimits:
    """Return the limits of the jobs that these settings are for."""
    return limits_with(settings.sandbox_minimum, settings.attack_s)


def limits_from(
    given: Mapping[str, float | None], sandbox: SandboxLevel | None, attack_s: float | None = None
) -> JobLimits:
    """Return the default limits with some replaced; SpecError where one has another name or value."""
    limits = limits_with(sandbox, attack_s)
    names = [*DEFAULT_LIMITS, "attack_s"]
    for name, value in given.items():
        if name not in names:
            raise SpecError(f"limits.{name}", value, one_of(name, names))
        whole = name == "memory_bytes"
        none = (whole and value is None) or (name == "attack_s" and value == 0)
        if not none and not _is_limit(value, whole=whole):
            least = "0 or more" if name == "attack_s" else "more than 0"
            expected = "bytes, more than 0, or None" if whole else f"seconds, {least} and less than a day"
            raise SpecError(f"limits.{name}", value, expected)
        limits[name] = value  # type: ignore[literal-required] # one of its names
    return limits


def _is_limit(value: object, *, whole: bool) -> bool:
    if isinstance(value, bool) or not isinstance(value, int if whole else int | float):
        return False
    return value > 0 if whole else 0 < value < 86_400


def _choose_workloads(
    op: Op, candidate: Candidate, place: Place, level: str, names: Sequence[str] | None
) -> list[Workload] | None:
    """Choose the workloads to judge on; None where `build_job` chooses.

    The bench workloads of a screening are mostly too large for Triton's interpreter, so a screening that comes down to
    it gets the test workloads too: the judge takes the smallest.
    """
    if isinstance(names, str):
        raise SpecError("workloads", names, "a list of ids")
    if names:
        return [op.workload(place.target, name) for name in names]
    if place.shortfall is not None and LANGUAGES[candidate.language].interpreted and level in ("screen", "compile"):
        return [item for item in op.workloads_for(place.target) if item.role != "holdout"]
    return None
