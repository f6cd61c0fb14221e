"""Checks that a verdict which came in a bundle is one on the job that its ticket names."""

from __future__ import annotations

import math
from typing import cast

from sqlalchemy.orm import Session

from warpsmith.kernels_db.job.documents import HOLDOUT_LEFT_OUT, Verdict
from warpsmith.kernels_db.job.means import weight_of
from warpsmith.kernels_db.job.python_parsing import parse_module
from warpsmith.kernels_db.spec.op import Target, parse_op
from warpsmith.kernels_db.store.tables import BundleJobRow, NodeRow, OpRow, SearchRow
from warpsmith.workers.gate.normalise import normalised_digest
from warpsmith.workers.gate.tunables import describe, has_configurations, read_tunables, specialise
from warpsmith.workers.steps.sweeping import leaders_of


class VerdictRefused(ValueError):  # noqa: N818 - named for what happened
    """A verdict or line that came back is refused; nothing was stored."""

    def __init__(self, field: str, found: object, expected: str) -> None:
        super().__init__(f"{field}: found {found!r}, expected {expected}")
        self.field, self.found, self.expected = field, found, expected


def check_whole(session: Session, search: SearchRow, job: BundleJobRow, verdict: Verdict) -> None:
    """Check that a verification that accepts is one on every workload of its job, the hold-outs drawn for it too.

    The judge leaves out a drawn hold-out on which the reference itself is not right, and notes it: as many may be
    missing as the verdict notes, and none of the op's own. One that rejects ends at the first workload that fails.
    """
    if verdict["level"] != "verify" or verdict["verdict"] != "accepted" or job.workloads is None:
        return
    judged, asked = {item["id"] for item in verdict["workloads"]}, set(job.workloads)
    op = parse_op(session.get_one(OpRow, search.op_id).spec)
    drawn = asked - {item.id for item in op.workloads_for(Target.parse(search.target))}
    missing = asked - judged
    if judged <= asked and missing <= drawn and len(missing) <= verdict["reason"].count(HOLDOUT_LEFT_OUT):
        return
    expected = f"those of its job, {sorted(job.workloads)}, but for drawn hold-outs that its reason notes as left out"
    raise VerdictRefused("verdict.workloads", sorted(judged), expected)


def check_sweep(source: str | None, share_s: float | None, verdict: Verdict) -> None:
    """Check that a sweep is one over the candidate's own configurations, and chose one of them that it timed.

    share_s: the device seconds that its job allowed it; None without a limit. 0 allows no sweep. Device seconds of a
    sweep are those of one that was made, or of configurations that were verified.
    """
    sweep, held_s = verdict.get("sweep"), verdict.get("sweep_seconds", 0.0)
    declared = _read_configurations(source) if verdict["level"] == "screen" and share_s != 0.0 else ()
    if sweep is None:
        if held_s > 0.0 and not declared and "configurations" not in verdict:
            raise VerdictRefused("verdict.sweep_seconds", held_s, "0: its job leaves nothing to sweep")
        _check_seconds(verdict)
        return
    if not declared:
        none = "its job allows no device seconds" if share_s == 0.0 else "its candidate leaves no number to a sweep"
        raise VerdictRefused("verdict.sweep", "some", f"none: {none}")
    if sweep["chosen"] not in declared:
        raise VerdictRefused("verdict.sweep.chosen", sweep["chosen"], "a configuration of the candidate")
    bench = {item["id"] for item in verdict["workloads"] if item["role"] == "bench"}
    seen: list[dict[str, int]] = []
    for position, entry in enumerate(sweep["configurations"]):
        path = f"verdict.sweep.configurations[{position}]"
        if entry["values"] not in declared or entry["values"] in seen:
            raise VerdictRefused(f"{path}.values", entry["values"], "a configuration of the candidate, each once")
        if verdict["score"] is not None and not entry["time_us"].keys() <= bench:
            raise VerdictRefused(f"{path}.time_us", sorted(entry["time_us"]), f"bench workloads, {sorted(bench)}")
        seen.append(entry["values"])
    timed = [entry["values"] for entry in sweep["configurations"] if entry["time_us"] and "failure" not in entry]
    if sweep["chosen"] not in timed:
        raise VerdictRefused("verdict.sweep.chosen", sweep["chosen"], "one with times in verdict.sweep.configurations")
    left_out = sweep.get("left_out", 0)
    if not 0 <= left_out <= len(declared) - len(seen):
        most = f"0 to {len(declared) - len(seen)}: the candidate declares {len(declared)} configurations"
        raise VerdictRefused("verdict.sweep.left_out", left_out, most)
    if not 0 <= (not_compiled := sweep.get("not_compiled", 0)) <= left_out:
        raise VerdictRefused("verdict.sweep.not_compiled", not_compiled, f"0 to {left_out}, those left out")


def _check_seconds(verdict: Verdict) -> None:
    """Check that the sweep seconds of a verification are the device seconds of the configurations that it verified."""
    if "configurations" not in verdict:
        return
    held_s = verdict.get("sweep_seconds", 0.0)
    judged = [cast("Verdict", one["verdict"]) for one in verdict["configurations"] if "verdict" in one]
    own_s = math.fsum(one["seconds"].get("exclusive", 0.0) for one in judged)
    if not math.isclose(held_s, own_s, rel_tol=1e-6, abs_tol=0.01):
        expected = f"{own_s:g}, the device seconds of its further configurations that were verified"
        raise VerdictRefused("verdict.sweep_seconds", held_s, expected)


def _read_configurations(source: str | None) -> tuple[dict[str, int], ...]:
    """Return what a sweep of `source` has to choose from; nothing where it has no choice."""
    if source is None or not has_configurations(source):
        return ()
    found = read_tunables(parse_module(source))
    return () if found is None else found.configurations


def check_configurations(
    session: Session, search: SearchRow, job: BundleJobRow, node: NodeRow, verdict: Verdict
) -> None:
    """Check that the further configurations of a verification are those that led in the sweep of its screening.

    Each once, as the candidate's own source with its numbers, and with a verdict that is one on its job.
    """
    leaders = [dict(values) for values in leaders_of(session, node)] if "configurations" in verdict else []
    seen: list[dict[str, int]] = []
    for position, one in enumerate(verdict.get("configurations", ())):
        path = f"verdict.configurations[{position}]"
        if one["values"] not in leaders or one["values"] in seen:
            expected = f"one of those that led in the sweep of its screening, each once: {leaders}"
            raise VerdictRefused(f"{path}.values", one["values"], expected)
        seen.append(one["values"])
        source = specialise(node.source or "", one["values"])
        for name, found, own in (
            ("source", one["source"], source),
            ("source_digest", one["source_digest"], normalised_digest(source)),
        ):
            if found != own:
                expected = f"that of the candidate with {describe(one['values'])}"
                raise VerdictRefused(f"{path}.{name}", found[:100], expected)
        if "verdict" not in one:
            continue
        judged = cast("Verdict", one["verdict"])
        try:
            check_verdict(session, search, "verify", node.language, judged)
            check_whole(session, search, job, judged)
        except VerdictRefused as error:
            raise VerdictRefused(f"{path}.{error.field}", error.found, error.expected) from error


def check_verdict(session: Session, search: SearchRow, level: str, language: str | None, verdict: Verdict) -> None:
    """Check that the verdict is one at this level, on code in this language, of the search's op and target.

    Another job's verdict is refused by its first field that does not fit.
    """
    op = parse_op(session.get_one(OpRow, search.op_id).spec)
    for field, found, expected in (
        ("level", verdict["level"], level),
        ("op", verdict["op"], op.name),
        ("target", verdict["target"], search.target),
        ("language", verdict["language"], language),
    ):
        if found != expected:
            raise VerdictRefused(f"verdict.{field}", found, f"{expected!r}")
    bench = {item.id for item in op.workloads_for(Target.parse(search.target)) if item.role == "bench"}
    judged = {item["id"] for item in verdict["workloads"] if item["role"] == "bench"}
    if (verdict["score"] is not None and judged != bench) or judged - bench:
        raise VerdictRefused("verdict.workloads", sorted(judged), f"the op's bench workloads {sorted(bench)}")
    weights = {item.id: item.weight for item in op.workloads_for(Target.parse(search.target))}
    for position, item in enumerate(verdict["workloads"]):
        weight = weights.get(item["id"], 1.0)
        if weight_of(item) != weight:
            field = f"verdict.workloads[{position}].weight"
            raise VerdictRefused(field, weight_of(item), f"{weight:g}, as the op has it")
    failure = verdict["failure"]
    if failure is not None and failure["kind"] == "duplicate":
        twin = failure.get("found")
        if type(twin) is not int or not 0 < twin < search.next_seq:
            raise VerdictRefused("verdict.failure.found", twin, "the number of a node of the search")
