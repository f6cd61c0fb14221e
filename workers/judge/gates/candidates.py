"""The first two gates: what a candidate may contain, and whether it compiles.

Nothing of the candidate runs here.

Free Python passes no allow-list. The gate only reads it: it must parse, and what it imports must be installed.
"""

from __future__ import annotations

import hashlib
import math
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, cast

from warpsmith.kernels_db.job.carried_builds import CarriedBuild
from warpsmith.kernels_db.job.documents import Failure, Job, JobCandidate, ResolvedWorkload, tier_of
from warpsmith.kernels_db.job.languages import LANGUAGES, of_device
from warpsmith.kernels_db.job.sweep_documents import SWEEP_S
from warpsmith.kernels_db.runtime.cache import CACHE_VARIABLE
from warpsmith.workers.gate import check
from warpsmith.workers.gate.gate import parse
from warpsmith.workers.gate.normalise import host_digest
from warpsmith.workers.gate.tunables import TUNE, Configuration, Tunables, describe, read_tunables, specialise
from warpsmith.workers.judge import languages
from warpsmith.workers.judge.gates.configurations import Configurations, Prepared, Variant, spread
from warpsmith.workers.judge.gates.verdict import Report, Stopped
from warpsmith.workers.judge.languages import carried, compile_service, confined_compiler, triton
from warpsmith.workers.judge.machine import cache_pruning
from warpsmith.workers.judge.machine.kernel_cache import kernel_cache

FIRST_S = 1.0
"""Device seconds that a sweep is taken to need for a configuration before it has timed one."""


def prepare(job: Job, report: Report, cache: Path, *, interpreted: bool = True) -> Prepared | None:
    """Take the candidate through the gates `gate` and `compile`.

    Returns None at baseline level. Raises Stopped.

    Args:
        interpreted: there is no CUDA device here. A Triton candidate then runs under Triton's interpreter; CUDA,
            Gluon, CuTe DSL and TileLang have none, so their candidates are compiled and go no further.
    """
    candidate = job["candidate"]
    if candidate is None:
        if job["target"].startswith("cuda"):
            compile_service.start()  # candidates follow their baselines: the compilers are there by then
        return None
    with report.gate("gate"):
        _gate(job, candidate)
    with report.gate("compile"):
        tunables = None
        here = job["target"].startswith("cpu") or not interpreted  # nothing is timed on a device that is not here
        if here and job["level"] == "screen" and tier_of(candidate["language"]) != "sandbox":
            tunables = read_tunables(parse(candidate["source"]))
        if job["level"] == "compile":
            _note_configurations(candidate, report)
        if tunables is not None and "build" in candidate:
            report.notes.append(
                f"its build is of the file's own numbers: not swept, judged at {describe(tunables.default)}"
            )
            tunables = None
        if tunables is not None and job["limits"].get("sweep_s") == 0:
            report.notes.append(f"limits.sweep_s is 0: not swept, judged at {describe(tunables.default)}")
            tunables = None
        if tunables is None or len(tunables.configurations) == 1:
            return _compile(job, candidate, report, cache, interpreted)
        return _compile_first(job, candidate, tunables, report, cache)


def _gate(job: Job, candidate: JobCandidate) -> None:
    device, language = job["target"].partition(":")[0], candidate["language"]
    known = of_device(device)
    if language not in known:
        expected = f"one of {', '.join(known)} for target {job['target']}"
        message = f"candidate.language: found {language!r}, expected {expected}"
        failure: Failure = {"kind": "language", "message": message, "field": "candidate.language"}
        failure |= {"found": language, "expected": expected}
        raise Stopped("rejected", "gate", message, failure)
    if tier_of(language) == "sandbox":
        return
    workload = job["workloads"][0]
    names = [item["name"] for item in [*workload["inputs"], *workload["outputs"]]]
    scalars = [item["name"] for item in workload["inputs"] if item["shape"] is None]
    problems = check(
        candidate["source"], language, job["op"]["library_calls"], names, scalars, _kinds(job["workloads"])
    )
    if problems:
        first = f"line {problems[0].line}: {problems[0].message}"
        log = "\n".join(f"line {problem.line}: {problem.message}" for problem in problems)
        raise Stopped("rejected", "gate", first, {"kind": "gate", "message": first, "log": log})


def _kinds(workloads: list[ResolvedWorkload]) -> dict[str, str]:
    """Return the dtype or number type of each parameter, where all workloads agree.

    This is all that the gate may know of a parameter.
    """
    found: dict[str, set[str]] = {}
    for workload in workloads:
        for item in workload["inputs"]:
            value = "None" if item["value"] is None else type(item["value"]).__name__
            found.setdefault(item["name"], set()).add(value if item["shape"] is None else item["dtype"])
        for output in workload["outputs"]:
            found.setdefault(output["name"], set()).add(output["dtype"])
    return {name: next(iter(kinds)) for name, kinds in found.items() if len(kinds) == 1}


def build(source: str, language: str, job: Job, cache: Path) -> dict[str, str]:
    """Build a kernel of ours for a job's target; returns its runner's variables."""
    directory = kernel_cache(cache, source)
    limits = languages.CompileLimits(seconds=job["limits"]["compile_s"])
    arch = job["target"].partition(":")[2]
    languages.prepare(source, language, target_arch=arch, cache_dir=directory, limits=limits, workloads=[])
    return {CACHE_VARIABLE: str(directory)}


def _compile(job: Job, candidate: JobCandidate, report: Report, cache: Path, interpreted: bool) -> Prepared:
    directory = kernel_cache(cache, candidate["source"])
    device, _, arch = job["target"].partition(":")
    language, came = candidate["language"], candidate.get("build")
    if came is not None:
        _note_carried(came, report)
        directory = carried.directory_of(came, directory)
    built = _build(job, candidate, report, directory, interpreted)
    report.compile = dict(built)
    if came is None:
        _note_compilers(language, report, away=interpreted and device == "cuda")
    if built["binaries"]:
        report.compile["digest"] = _digest(language, candidate["source"], built["binaries"])
        refuse_twin(job, report.compile["digest"])
    if language == "python":
        if device == "cuda" and interpreted:
            raise Stopped("ambiguous", "screen", "no CUDA device: free Python was parsed, and not run")
        return Prepared()
    environment = {CACHE_VARIABLE: str(directory), **(carried.variables(came) if came is not None else {})}
    if device == "cpu":
        return Prepared(environment=environment)
    if not interpreted:
        return Prepared(environment=environment | {"TRITON_CACHE_DIR": str(triton.triton_cache(directory))})
    if not LANGUAGES[language].interpreted:
        why = ": Triton's interpreter knows no Gluon" if language == "gluon" else ""
        raise Stopped("ambiguous", "screen", f"no CUDA device: compiled for {arch}, not run{why}")
    return Prepared(interpreted=True, environment=environment | {"TRITON_INTERPRET": "1"})


def _build(job: Job, candidate: JobCandidate, report: Report, directory: Path, interpreted: bool) -> Mapping[str, Any]:
    """Compile a candidate into a directory, or unpack its build there. Raises Stopped."""
    language = candidate["language"]
    cache_pruning.touch(directory)
    try:
        if "build" in candidate:
            return carried.unpack(candidate["build"], language, candidate["source"], job["target"], directory)
        return languages.prepare(
            candidate["source"],
            language,
            target_arch=job["target"].partition(":")[2],
            cache_dir=directory,
            limits=languages.CompileLimits(seconds=job["limits"]["compile_s"]),
            workloads=_workloads(job, interpreted),
            library_calls=job["op"]["library_calls"],
        )
    except carried.Refused as error:
        raise Stopped("rejected", "compile", str(error), cast("Failure", error.failure)) from error
    except languages.HostError as error:  # no candidate is at fault
        host: Failure = {"kind": "host", "message": error.message}
        raise Stopped("ambiguous", "compile", error.message, host) from error
    except languages.CompileError as error:
        failure: Failure = {"kind": "compile", "message": error.message, "log": error.log}
        if error.cause is not None:
            failure["cause"] = error.cause
        if isinstance(error, languages.TrialError):
            failure["workload"] = error.workload
        raise Stopped("rejected", "compile", error.message, failure) from error
    finally:
        if language == "cpp" and (held := confined_compiler.confinement()) is not None:
            report.compiler = held.document()


def _note_carried(came: CarriedBuild, report: Report) -> None:
    """Note who compiled a candidate whose build came with the job."""
    report.compilers.update(came["versions"])
    told = ", ".join(f"{name} {number}" for name, number in came["versions"].items())
    report.notes.append(f"compiled where its bundle was written, by {told}")


def _note_configurations(candidate: JobCandidate, report: Report) -> None:
    """Note how many configurations besides the file's own numbers a compilation leaves out."""
    tunables = None if tier_of(candidate["language"]) == "sandbox" else read_tunables(parse(candidate["source"]))
    if tunables is not None and (others := len(tunables.configurations) - 1):
        report.notes.append(
            f"compiled at the file's own numbers, {describe(tunables.default)}; "
            f"{others} other configuration{'s' if others > 1 else ''} of {TUNE} not compiled"
        )


def _note_compilers(language: str, report: Report, *, away: bool) -> None:
    """Note the versions that compiled a candidate whose device is `away`: the device's own host may have others."""
    for name in LANGUAGES[language].requirements if away else ():
        with suppress(PackageNotFoundError):
            report.compilers[name] = version(name)
    if report.compilers:
        told = ", ".join(f"{name} {number}" for name, number in report.compilers.items())
        report.notes.append(f"compiled here by {told}: another minor version may compile otherwise")


def _compile_first(job: Job, candidate: JobCandidate, tunables: Tunables, report: Report, cache: Path) -> Prepared:
    """Take the first configurations of a sweep through both gates; the others follow as it gets to them.

    Raises Stopped where the default does not compile and none is found that does.
    """
    unknown: Job = {**job, "known_binaries": {}}  # which one is judged is not known yet

    def compile_one(values: Configuration) -> Variant:
        began = time.monotonic()
        source = specialise(candidate["source"], values)
        own: JobCandidate = {**candidate, "source": source}
        own_report = Report(job)
        prepared, refused = None, None
        try:
            _gate(job, own)
            prepared = _compile(unknown, own, own_report, cache, interpreted=False)
        except Stopped as stopped:
            if stopped.verdict != "rejected":
                raise
            refused = stopped
        finally:
            report.compiler = own_report.compiler or report.compiler
        return Variant(values, source, prepared, own_report.compile, refused, time.monotonic() - began)

    beside = not job["target"].startswith("cpu")
    configurations = Configurations(spread(tunables.configurations), compile_one, beside=beside)
    found = configurations.begin(math.ceil(job["limits"].get("sweep_s", SWEEP_S) / FIRST_S))
    report.compile = found.compiled
    assert found.prepared is not None
    return replace(found.prepared, configurations=configurations)


def _digest(language: str, source: str, binaries: list[str]) -> str:
    """Return a digest of a candidate's kernel code and host code.

    Two candidates with the same digest run alike.
    """
    return hashlib.sha256("\n".join([language, host_digest(source), *binaries]).encode()).hexdigest()


def refuse_twin(job: Job, digest: str | None) -> None:
    """Raise Stopped where a screened candidate compiles to the same code as an earlier one.

    Compared within the search.
    """
    twin = None if digest is None else job.get("known_binaries", {}).get(digest)
    if twin is not None and job["level"] == "screen":
        message = f"duplicate of node #{twin} (same binary)"
        raise Stopped("rejected", "compile", message, {"kind": "duplicate", "message": message, "found": twin})


def _workloads(job: Job, interpreted: bool) -> list[ResolvedWorkload]:
    """Return the workloads that the job runs: compiling for a shape takes longer than a run.

    Hold-out workloads come last, so that what first appears on one appeared on no other.
    """
    benched = [workload for workload in job["workloads"] if workload["role"] == "bench"]
    if job["level"] in ("screen", "compile") and benched and not interpreted:
        return benched
    return sorted(job["workloads"], key=lambda workload: workload["role"] == "holdout")
