"""The judge's jobs of what was claimed, by a worker or by a bundle: steps, profiles and tries."""

from __future__ import annotations

from warpsmith.kernels_db.job.documents import Job, JobLimits, Verdict
from warpsmith.kernels_db.job.languages import LANGUAGES
from warpsmith.kernels_db.store.counterexamples import ask_first
from warpsmith.kernels_db.store.profiles import ProfileWork
from warpsmith.workers.judging.submission import record_job
from warpsmith.workers.steps import Work
from warpsmith.workers.steps.trying import TryWork


def make_job(work: Work | ProfileWork | TryWork, limits: JobLimits) -> Job:
    """Build the job of a judge or verify step, of a profile, or of a try. Raises SpecErrors as these do."""
    if isinstance(work, Work):
        return job_of(work, limits)
    return try_job(work, limits) if isinstance(work, TryWork) else profile_job(work, limits)


def job_of(work: Work, limits: JobLimits) -> Job:
    """Build the job of a judge or verify step.

    `limits`: as the settings of who gives it out say. The op's counterexamples go with it, to be asked first. Raises
    SpecErrors where the op asks for what the judge cannot do.
    """
    assert work.level is not None, "a model step has no job"
    candidate = None if work.level == "baseline" else (work.node.language, work.node.source)
    tests = {known.recipe["workload"] for known in work.counterexamples}
    job = record_job(work.op, work.target, work.level, candidate, limits, tests)
    ask_first(job, work.counterexamples)
    if work.level == "screen" and work.known_binaries:
        job["known_binaries"] = dict(work.known_binaries)
    if work.level == "screen" and work.sweep_s is not None:
        job["limits"]["sweep_s"] = work.sweep_s
    return job


def profile_job(work: ProfileWork, limits: JobLimits) -> Job:
    """Build the job of a profile. Raises SpecErrors where the op asks for what the judge cannot do."""
    return record_job(work.op, work.target, "profile", (work.language, work.source), limits)


def try_job(work: TryWork, limits: JobLimits) -> Job:
    """Build the job of a try; a screening is asked the op's counterexamples first, as one of the search is.

    A compilation may come down to Triton's interpreter, for which bench workloads are too large: it has the test ones
    too. Raises SpecErrors where the op asks for what the judge cannot do.
    """
    known = work.counterexamples if work.level == "screen" else ()
    tests: set[str] | None = {one.recipe["workload"] for one in known}
    if work.level == "compile" and LANGUAGES[work.language].interpreted:
        tests = None
    job = record_job(work.op, work.target, work.level, (work.language, work.source), limits, tests)
    ask_first(job, known)
    return job


def summary(verdict: Verdict) -> dict[str, object]:
    """Return the fields of a verdict for a log line."""
    return {name: verdict[name] for name in ("level", "verdict", "gate", "reason", "score")}
