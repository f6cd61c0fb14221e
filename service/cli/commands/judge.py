"""`warpsmith judge`: judges one candidate without database or broker; only an op by name may ask a service."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from warpsmith.kernels_db.job.attack_summary import summarise_attack
from warpsmith.kernels_db.job.documents import Failure, SandboxLevel, Verdict, WorkloadVerdict, has_compiled, tier_of
from warpsmith.kernels_db.job.languages import LANGUAGES, NAMED
from warpsmith.kernels_db.job.shown_numbers import apart, shown
from warpsmith.kernels_db.job.sweep_documents import describe_sweep, describe_tuned
from warpsmith.kernels_db.spec.near_misses import one_of
from warpsmith.kernels_db.spec.resolve import limits_with
from warpsmith.service.cli.files import read_text
from warpsmith.service.cli.judge_progress import show_progress
from warpsmith.service.cli.op_argument import load_named_op
from warpsmith.service.cli.options import Json, Key, OpArgument, Url
from warpsmith.service.cli.output import print_json, print_wide, say, tell
from warpsmith.service.client.errors import DONE, FAILED, misuse
from warpsmith.service.client.progress import build_result_rows, build_result_table, describe_untimed
from warpsmith.service.documents.figures import format_attack, format_host, format_ratio, list_kernel_uses
from warpsmith.service.documents.workloads import WorkloadTimes
from warpsmith.service.local.judging import judge_once
from warpsmith.service.settings import ServiceSettings
from warpsmith.workers.judging.candidates import read_candidate
from warpsmith.workers.judging.submission import candidate_job
from warpsmith.workers.judging.targets import choose_place

LEVELS = ("compile", "screen", "verify")
LONGEST_LOG = 4000


def judge(
    op: OpArgument,
    file: Annotated[
        Path,
        typer.Argument(
            metavar="FILE.py",
            help="The candidate; or, for an op imported from the same format, a ModelNew, a Solution or a submission.",
            show_default=False,
        ),
    ],
    target: Annotated[
        str | None,
        typer.Option(help="cpu, cuda:sm_90 ...; where not given the CPU for cpp and python, else the first GPU."),
    ] = None,
    workload: Annotated[list[str] | None, typer.Option(help="Only this workload; may be given again.")] = None,
    level: Annotated[
        str,
        typer.Option(
            help="compile: gate and compilers alone. screen: bench workloads, short timing. verify: everything."
        ),
    ] = "verify",
    language: Annotated[
        str | None, typer.Option(help=f"{NAMED}, read from the imports where not given; or python, free.")
    ] = None,
    attack: Annotated[
        float | None,
        typer.Option(
            min=0.0,
            metavar="SECONDS",
            help="With verify: how long to search each workload for values on which the candidate is wrong; 0: not at "
            "all. WARPSMITH_ATTACK_S where not given, else 5 on a CPU and 2 on a GPU.",
        ),
    ] = None,
    sandbox_minimum: Annotated[
        SandboxLevel | None,
        typer.Option(help="Least confinement of what runs; WARPSMITH_SANDBOX_MINIMUM where not given."),
    ] = None,
    url: Url = None,
    key: Key = None,
    as_json: Json = False,
) -> None:
    """Compile, check against PyTorch and time one candidate.

    It runs on this machine; a service is asked for the op alone, where that is no file. Exit code 0: accepted, or at
    level compile: it compiles; 1: not, or no verdict; 2: misuse.
    """
    spec = load_named_op(op, url, key)
    if level not in LEVELS:
        misuse("--level", level, one_of(level, LEVELS))
    source = read_text("FILE.py", file)
    if language is not None and language not in LANGUAGES:
        misuse("--language", language, one_of(language, LANGUAGES))
    candidate = read_candidate(spec, source, language, file)
    if candidate.format is not None:
        say(f"{file} is a {candidate.format} candidate: free Python, of the {tier_of(candidate.language)} tier")
    for note in candidate.notes:
        say(f"note: {note}")
    place = choose_place(target, candidate.language)
    settings = ServiceSettings()
    limits = limits_with(sandbox_minimum or settings.sandbox_minimum, settings.attack_s if attack is None else attack)
    job = candidate_job(spec, candidate, place, level=level, workloads=workload, limits=limits)
    say(f"judging {file} against {spec.name} on {place.target} ({level}, {len(job['workloads'])} workloads)")
    if place.shortfall:
        say(place.shortfall)
    with show_progress() as progress:
        verdict = judge_once(job, progress)
    if as_json:
        print_json(verdict)
    else:
        show(verdict)
    good = verdict["verdict"] == "accepted" or (level == "compile" and has_compiled(verdict))
    raise typer.Exit(DONE if good else FAILED)


def show(verdict: Verdict) -> None:
    """Print a verdict for people: a table of an accepted candidate, or the failure's place."""
    tell(f"{verdict['verdict']} at {at_gate(verdict)}")
    failure = verdict["failure"]
    if failure is not None:
        for line in describe_failure(failure, verdict["reason"]):
            tell(f"  {line}")
    for line in describe_kernels(verdict["compile"] or {}):
        tell(f"  {line}")
    times = [_extract_times(item) for item in verdict["workloads"] if "candidate" in item["time_us"]]
    if times:
        print_wide(build_result_table(build_result_rows(verdict["op"], times, roles=("bench", "test", "holdout"))))
        for line in describe_untimed(times):
            tell(line)
    if verdict["score"] is not None:
        tell(f"score {format_ratio(verdict['score'], verdict['score_ci95'])} over the fastest baseline")
    if (sweep := verdict.get("sweep")) is not None:
        tell(f"swept in {sweep['seconds']:.0f} s: {describe_sweep(sweep)}")
    if (tuned := describe_tuned(verdict["workloads"])) is not None:
        tell(tuned)
    if (host := verdict.get("host_us")) is not None:
        tell(format_host(host))
    level = verdict["sandbox"].get("level", "none")
    attack = summarise_attack(verdict.get("attack"))
    if attack is not None:
        tell(format_attack(attack))
    tell(f"sandbox: {level}" + (" (nothing of the candidate was run)" if level == "none" else ""))
    if verdict.get("tier") == "sandbox":
        tell("tier: sandbox (free Python: no gate has read it, and no search keeps it)")


def describe_kernels(report: dict[str, Any]) -> list[str]:
    """Describe the GPU resources of each compiled kernel, one line each; nothing for a CPU's."""
    return [f"kernel    {line}" for line in list_kernel_uses(report)]


def at_gate(verdict: Verdict) -> str:
    """Return a verdict's gate and reason; a reason that begins with the gate's name says it once."""
    return f"{verdict['gate']}: {verdict['reason'].removeprefix(verdict['gate'] + ': ')}"


def describe_failure(failure: Failure, reason: str = "") -> list[str]:
    """Describe a failure: workload, element, expected and found, then the log, where it says more than the reason."""
    lines = []
    place = failure.get("tensor") or failure.get("field")
    if place is not None:
        index = "[" + ", ".join(map(str, failure["index"])) + "]" if failure.get("index") is not None else ""
        place = f"{place}{index}"
    if failure.get("workload"):
        lines.append(f"workload  {failure['workload']}")
    if place:
        lines.append(f"element   {place}" if "index" in failure else f"where     {place}")
    expected, found = apart(failure.get("expected"), failure.get("found"))
    values = {name: text for name, text in (("expected", expected), ("found", found)) if failure.get(name) is not None}
    values |= {} if failure.get("limit") is None else {"limit": shown(failure["limit"])}
    lines += [f"{name:9} {value}" for name, value in values.items()]
    if failure.get("wrong_elements") is not None:
        lines.append(f"wrong     {failure['wrong_elements']:,} of {failure.get('elements', 0):,} elements")
    if failure.get("description"):
        lines.append("values on which it is wrong:")
        lines += [f"  {line}" for line in failure["description"].splitlines()]
    if failure.get("log", "").strip() not in ("", reason.strip()):
        lines.append("log:")
        lines += failure["log"][-LONGEST_LOG:].splitlines()
    return lines


def _extract_times(workload: WorkloadVerdict) -> WorkloadTimes:
    return WorkloadTimes(
        id=workload["id"],
        role=workload["role"],
        time_us=workload["time_us"],
        speedup=workload["speedup"],
        ci95=workload["ci95"],
        limit_fraction=workload["limit_fraction"],
        not_timed=workload.get("not_timed", {}),
        weight=workload.get("weight", 1.0),
    )
