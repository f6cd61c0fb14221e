"""Checks of untrusted lines of verdicts.jsonl or unjudged.jsonl.

All parts of a verdict that Warpsmith reads later are checked here, so that a forged one can be wrong, but can break
nothing: types by the TypedDicts of `warpsmith.kernels_db.job.documents`, sizes, ranges, and finite numbers.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any, Literal, NotRequired, TypedDict, cast, get_args

from warpsmith.kernels_db.job.bundle import LONGEST_REASON, SignedUnjudged, SignedVerdict, Unjudged
from warpsmith.kernels_db.job.documents import Level, Verdict, VerifiedConfiguration, WorkloadVerdict
from warpsmith.kernels_db.job.means import weight_of
from warpsmith.kernels_db.job.strict_json import read_strictly, walk
from warpsmith.kernels_db.job.sweep_documents import MOST_LEADERS, Sweep
from warpsmith.service.bundles.bounds import check_all_names, check_interval, check_names, check_range
from warpsmith.service.bundles.profiles import SandboxFacts, check_profile
from warpsmith.service.documents.problems import field_path
from warpsmith.workers.judge.protocol.contract import BrokenDocument, check, short

LONGEST_LINE = 4 << 20
LONGEST_TEXT = 1 << 18
"""Longest text of a verdict, in characters.

The judge's longest texts, compilers' messages and generated code, are far shorter.
"""

MOST_VALUES = 200_000
DEEPEST = 32
LONGEST_GATE_S = 7 * 86_400.0
TICKET = {
    "nonce": r"bj_[0-9a-z]{26}",
    "bundle_id": r"bn_[0-9a-z]{26}",
    "search_id": r"sr_[0-9a-z]{1,29}",
    "attempt_id": r"(at|pf|ty)_[0-9a-z]{1,29}",
    "job_digest": r"[0-9a-f]{64}",
    "signature": r"[0-9a-f]{64}",
}
MOST_FACTS, LONGEST_FACT = 8, 300
MOST_ROUNDS = 64
"""Rounds of a sweep, far above the judge's own."""

NOT_FINITE = ("nan", "inf", "-inf")
BY_THE_SERVICE = "bundle"
"""The field of a verdict for its origin; the service alone writes it."""


class _Config(TypedDict):
    num_warps: NotRequired[int]


class _Kernel(TypedDict):
    name: NotRequired[str]
    registers: NotRequired[int | None]
    spills: NotRequired[int | None]
    shared: NotRequired[int | None]
    config: NotRequired[_Config]


class _Launch(TypedDict):
    kernel: str
    block: list[int]
    shared_bytes: NotRequired[int | None]


class _Compile(TypedDict):
    """The parts of `Verdict.compile` that the service reads."""

    log: NotRequired[str | None]
    digest: NotRequired[str | None]
    kernels: NotRequired[list[_Kernel]]
    launches: NotRequired[list[_Launch] | None]


class _Peaks(TypedDict):
    bandwidth_gbs: NotRequired[dict[str, float] | None]


class _Device(TypedDict):
    """The parts of `Verdict.device` that the service reads."""

    name: NotRequired[str | None]
    peaks: NotRequired[_Peaks | None]


def read_line(line: bytes) -> SignedVerdict | SignedUnjudged:
    """Read the signed verdict of a line, or the reason why there is none; raises BrokenDocument.

    Does not check that its ticket is ours.
    """
    if len(line) > LONGEST_LINE:
        raise BrokenDocument("(line)", f"{len(line)} bytes", f"at most {LONGEST_LINE}")
    try:
        text = line.decode("utf-8")
    except UnicodeDecodeError as error:
        raise BrokenDocument("(line)", f"{line[error.start]:#04x} as byte {error.start}", "UTF-8") from None
    try:
        document = read_strictly(text)
    except ValueError as error:
        raise BrokenDocument("(line)", short(text), f"a verdict as one line of JSON ({error})") from None
    check_values(document)
    kind: Any = SignedUnjudged if isinstance(document, dict) and "unjudged" in document else SignedVerdict
    check(kind, _replace_non_finite(document), "")
    check_names(kind, document, "")
    for field, pattern in TICKET.items():
        if not re.fullmatch(pattern, document[field]):
            raise BrokenDocument(field, short(document[field]), f"text that matches {pattern}")
    _check_host(document["host"])
    if kind is SignedUnjudged:
        _check_unjudged(document["unjudged"])
        return cast("SignedUnjudged", document)
    found = cast("SignedVerdict", document)
    if found["verdict"]["id"] != found["nonce"]:
        raise BrokenDocument("verdict.id", short(found["verdict"]["id"]), f"{found['nonce']!r}, the job of this line")
    check_verdict(found["verdict"])
    return found


def check_values(document: Any) -> None:
    """Raise BrokenDocument where a value is not finite or too large, or there are too many."""
    for number, (location, level, value) in enumerate(walk(document)):
        found, expected = None, ""
        if number > MOST_VALUES:
            raise BrokenDocument("(line)", f"more than {MOST_VALUES} values", "a verdict")
        if level > DEEPEST:
            found, expected = f"{level} levels", f"at most {DEEPEST} levels of nesting"
        elif isinstance(value, str) and len(value) > LONGEST_TEXT:
            found, expected = f"{len(value)} characters", f"at most {LONGEST_TEXT}"
        elif isinstance(value, float) and not math.isfinite(value):
            found, expected = str(value), "a finite number"
        elif isinstance(value, int) and abs(value) >= 2**63:
            found, expected = f"an integer of {value.bit_length()} bits", "one of at most 64 bits"
        if found is not None:
            raise BrokenDocument(field_path(location)[:100], found, expected)


def check_verdict(verdict: Verdict) -> None:
    """Check the rules that types do not express; raises BrokenDocument."""
    check_names(Verdict, cast("dict[str, Any]", verdict), "verdict.")
    if BY_THE_SERVICE in verdict:
        raise BrokenDocument("verdict.bundle", "a provenance", "none: the service writes it")
    if verdict["level"] == "compile":
        raise BrokenDocument("verdict.level", verdict["level"], f"one of {', '.join(get_args(Level)[:4])}")
    check(_Compile | None, verdict["compile"], "verdict.compile")
    check(_Device, verdict["device"], "verdict.device")
    check(SandboxFacts, verdict["sandbox"], "verdict.sandbox")
    for footprint, rate in ((verdict["device"].get("peaks") or {}).get("bandwidth_gbs") or {}).items():
        path = f"verdict.device.peaks.bandwidth_gbs.{footprint}"
        if not re.fullmatch(r"\d{1,18}(\.\d{1,6})?", footprint):
            raise BrokenDocument(path[:200], short(footprint), "bytes")
        check_range(rate, path)
    for position, launch in enumerate((verdict["compile"] or {}).get("launches") or []):
        if len(launch["block"]) != 3:
            raise BrokenDocument(f"verdict.compile.launches[{position}].block", launch["block"], "three sizes")
    for gate, seconds in verdict["seconds"].items():
        if not 0 <= seconds <= LONGEST_GATE_S:
            raise BrokenDocument(f"verdict.seconds.{gate}", seconds, f"seconds from 0 to {LONGEST_GATE_S:g}")
    failure: Mapping[str, Any] = verdict["failure"] or {}
    wrong, elements = failure.get("wrong_elements", 0), failure.get("elements", 1)
    if not 0 <= wrong <= elements or elements < 1:
        raise BrokenDocument("verdict.failure.wrong_elements", wrong, f"a share of {elements} elements")
    _check_score(verdict)
    _check_host_time(verdict)
    _check_sweep(verdict)
    _check_configurations(verdict)
    check_profile(verdict)
    seen: set[str] = set()
    for position, workload in enumerate(verdict["workloads"]):
        path = f"verdict.workloads[{position}]"
        if workload["id"] in seen:
            raise BrokenDocument(f"{path}.id", short(workload["id"]), "an id that no other workload has")
        seen.add(workload["id"])
        _check_workload(workload, path)


def _check_host(host: dict[str, str]) -> None:
    if len(host) > MOST_FACTS or any(len(name) + len(fact) > LONGEST_FACT for name, fact in host.items()):
        raise BrokenDocument("host", short(host), f"at most {MOST_FACTS} facts of {LONGEST_FACT} characters")


def _check_unjudged(unjudged: Unjudged) -> None:
    check_names(Unjudged, cast("dict[str, Any]", unjudged), "unjudged.")
    length = len(unjudged["reason"])
    if length > LONGEST_REASON:
        raise BrokenDocument("unjudged.reason", f"{length} characters", f"at most {LONGEST_REASON}")


def _check_score(verdict: Verdict) -> None:
    score, interval = verdict["score"], verdict["score_ci95"]
    if score is None:
        if interval is not None:
            raise BrokenDocument("verdict.score_ci95", interval, "null, where there is no score")
        return
    check_range(score, "verdict.score")
    if interval is None:
        raise BrokenDocument("verdict.score_ci95", None, "two numbers, beside a score")
    check_interval(interval, "verdict.score_ci95")


def _check_host_time(verdict: Verdict) -> None:
    for name, value in verdict.get("host_us", {}).items():
        if isinstance(value, int | float):
            check_range(value, f"verdict.host_us.{name}", least=0.0)


def _check_sweep(verdict: Verdict) -> None:
    if not 0 <= (held := verdict.get("sweep_seconds", 0.0)) <= verdict["seconds"].get("exclusive", 0.0) + 0.01:
        expected = "device seconds, 0 to those of verdict.seconds.exclusive"
        raise BrokenDocument("verdict.sweep_seconds", held, expected)
    sweep = verdict.get("sweep")
    if sweep is None:
        return
    if verdict["level"] != "screen":
        raise BrokenDocument("verdict.sweep", "some", f"none at level {verdict['level']}")
    check_all_names(Sweep, sweep, "verdict.sweep")
    check_range(sweep["seconds"], "verdict.sweep.seconds", least=0.0)
    for name in ("limit_s", "compile_s"):
        check_range(sweep.get(name, 0.0), f"verdict.sweep.{name}", least=0.0)  # type: ignore[arg-type]  # a number
    for position, entry in enumerate(sweep["configurations"]):
        path = f"verdict.sweep.configurations[{position}]"
        if not 0 <= entry["rounds"] <= MOST_ROUNDS:
            raise BrokenDocument(f"{path}.rounds", entry["rounds"], f"0 to {MOST_ROUNDS}")
        for name, value in entry["time_us"].items():
            check_range(value, f"{path}.time_us.{name}")


def _check_configurations(verdict: Verdict) -> None:
    """Check what a verification tells of further configurations: each with a verdict like its own, or none."""
    if "configurations" not in verdict:
        return
    found = verdict["configurations"]
    if (verdict["level"], verdict["verdict"]) != ("verify", "accepted"):
        level = f"level {verdict['level']}, {verdict['verdict']}"
        raise BrokenDocument("verdict.configurations", "some", f"none at {level}: an accepted verification has them")
    if len(found) > MOST_LEADERS:
        raise BrokenDocument("verdict.configurations", f"{len(found)} of them", f"at most {MOST_LEADERS}")
    check_all_names(list[VerifiedConfiguration], found, "verdict.configurations")
    for position, one in enumerate(found):
        path = f"verdict.configurations[{position}]"
        if "verdict" not in one:
            continue
        judged = one["verdict"]
        for name in ("configurations", "sweep", "sweep_seconds", "profile"):
            if name in judged:
                raise BrokenDocument(f"{path}.verdict.{name}", "some", "none: it is of one configuration alone")
        check(Verdict, _replace_non_finite({"verdict": judged})["verdict"], f"{path}.verdict")
        if judged["id"] != verdict["id"]:
            raise BrokenDocument(f"{path}.verdict.id", short(judged["id"]), f"{verdict['id']!r}, the job of this line")
        try:
            check_verdict(cast("Verdict", judged))
        except BrokenDocument as error:
            raise BrokenDocument(f"{path}.{error.field}", error.found, error.expected) from None


def _check_workload(workload: WorkloadVerdict, path: str) -> None:
    check(Literal["bench", "test", "holdout"], workload["role"], f"{path}.role")
    for name in ("time_us", "speedup"):
        for key, value in cast("dict[str, dict[str, float]]", workload)[name].items():
            check_range(value, f"{path}.{name}.{key}")
    for key, interval in workload["ci95"].items():
        check_interval(interval, f"{path}.ci95.{key}")
    for name in ("limit_us", "limit_fraction"):
        found = cast("dict[str, Any]", workload)[name]
        if found is not None:
            check_range(found, f"{path}.{name}")
    check_range(weight_of(workload), f"{path}.weight")
    for key in workload["speedup"]:
        if key not in workload["time_us"]:
            raise BrokenDocument(f"{path}.time_us.{key}", None, "the time to the speed-up of that name")
        if key not in workload["ci95"]:
            raise BrokenDocument(f"{path}.ci95.{key}", None, "the interval to the speed-up of that name")
    names, calls = workload.get("kernels"), workload.get("kernel_calls")
    if names is not None and calls is not None and len(names) != len(calls):
        raise BrokenDocument(f"{path}.kernel_calls", len(calls), f"{len(names)} numbers, one for each kernel")


def _replace_non_finite(line: Any) -> Any:
    """Replace "nan", "inf" and "-inf", which the judge writes for errors, by 0."""
    if not isinstance(line, dict) or not isinstance(line.get("verdict"), dict):
        return line
    verdict = dict(line["verdict"])
    if isinstance(verdict.get("failure"), dict) and _is_non_finite(verdict["failure"].get("limit")):
        verdict["failure"] = {**verdict["failure"], "limit": 0.0}
    if isinstance(verdict.get("workloads"), list):
        verdict["workloads"] = [_replace_in_workload(workload) for workload in verdict["workloads"]]
    attack = verdict.get("attack")
    if isinstance(attack, dict) and isinstance(attack.get("workloads"), list):
        entries = [_replace_in_errors(entry) if isinstance(entry, dict) else entry for entry in attack["workloads"]]
        verdict["attack"] = {**attack, "workloads": entries}
    return {**line, "verdict": verdict}


def _replace_in_workload(workload: Any) -> Any:
    if not isinstance(workload, dict):
        return workload
    given = {name: workload[name] for name in ("error", "families") if isinstance(workload.get(name), dict)}
    return {**workload, **{name: _replace_in_errors(errors) for name, errors in given.items()}}


def _replace_in_errors(errors: dict[str, Any]) -> dict[str, Any]:
    return {
        name: 0.0 if _is_non_finite(value) else _replace_in_errors(value) if isinstance(value, dict) else value
        for name, value in errors.items()
    }


def _is_non_finite(value: object) -> bool:
    return isinstance(value, str) and value in NOT_FINITE
