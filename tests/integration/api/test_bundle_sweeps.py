"""Sweeps in bundles: further configurations, candidates that were screened before, and how many trips two rounds take.

The bundle's run is the judge's own (`protocol.directory`); what stands behind it says what a device would.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient
from sqlalchemy import select

from tests.integration.api.test_bundle_trips import screened, verification_line, write
from tests.integration.api.test_bundles import attempts, bundled, lines_in, merged, nodes, refusal, verdict_line
from tests.services import on_both_databases
from tests.support import steps_support
from warpsmith.kernels_db.job.documents import Job, Verdict
from warpsmith.kernels_db.spec.op import Target
from warpsmith.kernels_db.store.db import Database
from warpsmith.kernels_db.store.tables import SearchRow, VerdictRow
from warpsmith.service.bundles.folder import JUDGE_INSTALLED, write_bundle
from warpsmith.service.documents.bundles import BundleDocument
from warpsmith.service.views.techniques import _sum_judging
from warpsmith.workers import steps
from warpsmith.workers.gate.normalise import normalised_digest
from warpsmith.workers.gate.tunables import has_configurations, specialise
from warpsmith.workers.judge.protocol import directory
from warpsmith.workers.steps import bundling
from warpsmith.workers.steps.sweeping import unreserved_seconds

POLICY = {"name": "idea_beam", "beam": 1, "diverse": 0, "ideas": 2, "rounds": 2, "max_rounds": 2, "round_share": 1.0}
SWEEP = {
    "chosen": {"BLOCK": 128},
    "configurations": [
        {"values": {"BLOCK": 128}, "time_us": {"large": 100.0}, "rounds": 1},
        {"values": {"BLOCK": 256}, "time_us": {"large": 50.0}, "rounds": 1},
        {"values": {"BLOCK": 64}, "time_us": {"large": 130.0}, "rounds": 1},
    ],
    "seconds": 3.0,
}
LED = {"BLOCK": 256}


def tuned(score: float) -> str:
    """A candidate with a sweep, and the speed-up that the device has for it."""
    return f'TUNE = {{"BLOCK": [64, 128, 256]}}\nBLOCK = 64\n\n\ndef run(x, y, out):\n    return BLOCK, {score}\n'


def judged(job: Job, seconds: float = 1.0) -> Verdict:
    """The verdict of a device on a job: the speed-up that the candidate names; 0 is a wrong one."""
    source = "" if job["candidate"] is None else job["candidate"]["source"]
    number = re.search(r"return \w+, ([\d.]+)", source)
    score = None if number is None else float(number[1])
    document: Any = steps_support.verdict(job["level"], "rejected" if score == 0.0 else "accepted", score or None)
    for workload in document["workloads"]:
        workload["time_us"] |= {"compile": 90.0, "max_autotune": 80.0}
    if job["level"] == "baseline":
        document |= {"score": 1.0, "score_ci95": [0.98, 1.02]}
    if job["level"] == "verify":
        (large, test) = document["workloads"]
        others = [one["id"] for one in job["workloads"] if one["id"] != "large"]
        document["workloads"] = [large, *({**test, "id": each} for each in others)]
    held = {"exclusive": seconds, job["level"]: seconds}
    document |= {"id": job["id"], "sandbox": {"level": "isolated", "layers": []}, "seconds": held}
    if job["level"] == "screen" and has_configurations(source):
        document |= {"sweep": SWEEP, "sweep_seconds": seconds}
    found: Verdict = document
    return found


class Device:
    """What stands behind the judge of a bundle; `asked`: the level and source of each job."""

    asked: list[tuple[str, str]]

    def __init__(self, **_: Any) -> None:
        pass

    def __enter__(self) -> Device:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def judge(self, job: Job, timeout_s: float, on_wait: Callable[[], None] | None = None) -> Verdict:
        assert timeout_s > 0
        assert on_wait is not None
        self.asked.append((job["level"], "" if job["candidate"] is None else job["candidate"]["source"]))
        return judged(job)


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> type[Device]:
    monkeypatch.setattr(Device, "asked", [], raising=False)
    monkeypatch.setattr(directory, "JudgeClient", Device)
    monkeypatch.setattr(directory, "check_host", lambda *_: None)
    return Device


def travel(client: TestClient, place: Path, *bundles: BundleDocument) -> None:
    """One trip: the bundles are judged on the other host and merged, and nothing of them is refused or late."""
    places = [place / bundle.id for bundle in bundles]
    for each, bundle in zip(places, bundles, strict=True):
        write_bundle(each, bundle, judged_by=JUDGE_INSTALLED)
    assert directory.judge_directories(places, place / "cache", 600.0) == directory.DONE
    for each in places:
        report = merged(client, *(line.decode() for line in lines_in(each / "verdicts.jsonl")))
        assert (report["refused"], report["late"], report["unjudged"]) == (0, 0, 0), report


def created(db: Database, **budget: float) -> str:
    """A running search of two rounds whose baselines wait for a judge."""
    target = Target.parse("cpu")
    search_id = steps.create_search(
        db,
        steps_support.OP,
        target,
        language="cpp",
        policy=POLICY,
        budget=budget,
        model={"provider": "agent"},
        now=time.time(),
    )
    steps.advance(db, search_id, time.time())
    return search_id


def begun(client: TestClient, db: Database, sources: list[str], **budget: float) -> str:
    """A search whose baselines are merged and whose first candidates are written."""
    search_id = created(db, **budget)
    merged(client, verdict_line(bundled(client, search_id)))
    write(db, search_id, sources)
    return search_id


def screen_at_home(db: Database, search_id: str) -> str:
    """A worker screens the first candidate that waits; returns its node's id."""
    waiting = next(one for one in attempts(db, search_id) if (one.kind, one.state) == ("judge", "pending"))
    work = steps.claim(db, waiting.id, "a worker", 30.0, time.time())
    assert work is not None
    source = work.node.source or ""
    job: Any = {"id": "home", "level": "screen", "candidate": {"source": source}, "workloads": []}
    assert steps.complete_judge(db, waiting.id, "a worker", judged(job), time.time())
    steps.advance(db, search_id, time.time())
    return waiting.node_id


def verification_of(db: Database, node_id: str) -> dict[str, Any]:
    with db.reading() as session:
        query = select(VerdictRow.document).where(VerdictRow.node_id == node_id, VerdictRow.level == "verify")
        found: dict[str, Any] = session.scalars(query).one()
        return found


@pytest.mark.parametrize("home", [False, True], ids=["bundles alone", "a worker screens one"])
@on_both_databases("db")
def test_two_rounds_with_sweeps_take_three_trips(
    client: TestClient, db: Database, tmp_path: Path, device: type[Device], home: bool
) -> None:
    search_id = created(db)
    bundles = [bundled(client, search_id)]
    written = [[tuned(2.0), tuned(1.5)], [tuned(2.5), tuned(0.0)], [tuned(2.2)]]
    trips = 0
    while client.get(f"/v1/searches/{search_id}").json()["state"] == "running":
        assert trips < 3, [(node.seq, node.state, node.verification, node.reason) for node in nodes(db, search_id)]
        write(db, search_id, written.pop(0))
        if home and trips == 0:  # while the baselines travel
            screen_at_home(db, search_id)
        travel(client, tmp_path, *bundles, bundled(client, search_id))
        bundles, trips = [], trips + 1
    search = client.get(f"/v1/searches/{search_id}").json()
    assert (search["state"], search["reason"]) == ("finished", "2 rounds were played")
    verified = [node for node in nodes(db, search_id) if node.verification == "passed"]
    assert [node.score for node in verified] == [2.0, 2.5]
    for node in verified:
        assert "\nBLOCK = 128\n" in (node.source or ""), "the node is what its sweep chose"
        (further,) = verification_of(db, node.id)["configurations"]
        assert further["values"] == LED
        assert further["source"] == specialise(node.source or "", LED)
        assert further["verdict"]["verdict"] == "accepted"
    assert {one.state for one in attempts(db, search_id) if one.kind == "verify"} == {"succeeded"}
    levels = [level for level, _ in device.asked]
    assert levels.count("verify") == 2 * len(verified), "each with one that led"
    with db.reading() as session:
        swept = session.get_one(SearchRow, search_id).sweep_seconds
    screens = levels.count("screen") + (1 if home else 0)
    assert swept == screens + len(verified), "sweeps and further configurations, a second each"


def at_home_and_away(client: TestClient, db: Database, **budget: float) -> tuple[str, str, BundleDocument]:
    """A search, the node that a worker screened with 2.0, and the bundle that screens its sibling."""
    search_id = begun(client, db, [tuned(2.0), tuned(1.5)], **budget)
    node_id = screen_at_home(db, search_id)
    return search_id, node_id, bundled(client, search_id)


@on_both_databases("db")
def test_a_candidate_that_a_worker_screened_is_verified_with_its_siblings(
    client: TestClient, db: Database, tmp_path: Path, device: type[Device]
) -> None:
    search_id, node_id, bundle = at_home_and_away(client, db)
    assert (bundle.count, len(bundle.verifications)) == (1, 2)
    line = json.loads(bundle.verifications[1])
    assert line["screened"] == {"score": 2.0, "ci95": [1.96, 2.04]}
    assert line["further"] == {"configurations": [LED], "sweep_s": None, "device_s": None}
    travel(client, tmp_path, bundle)
    assert [node.verification for node in nodes(db, search_id)[1:3]] == ["passed", "none"]
    assert verification_of(db, node_id)["configurations"][0]["values"] == LED
    assert not [one for one in attempts(db, search_id) if (one.kind, one.state) == ("verify", "pending")]


def test_a_bundle_with_its_verification_leaves_the_seconds_of_a_screening_at_home(
    client: TestClient, db: Database
) -> None:
    """Those of steps that a bundle held say nothing of judging; a worker did this one."""
    search_id = begun(client, db, [tuned(2.0), tuned(1.5)])
    screen_at_home(db, search_id)

    def seconds() -> float:
        with db.reading() as session:
            return sum(_sum_judging(session, session.get_one(SearchRow, search_id)).values())

    own = seconds()
    assert own > 0.0
    bundled(client, search_id)
    assert seconds() == own


def test_one_that_a_sibling_surpasses_stays_unverified(
    client: TestClient, db: Database, tmp_path: Path, device: type[Device]
) -> None:
    search_id = begun(client, db, [tuned(1.5), tuned(2.0)])
    screen_at_home(db, search_id)
    travel(client, tmp_path, bundled(client, search_id))
    assert [node.verification for node in nodes(db, search_id)[1:3]] == ["none", "passed"]
    assert sum(level == "verify" for level, _ in device.asked) == 2


def test_one_that_was_banned_or_is_verified_at_home_is_late(client: TestClient, db: Database) -> None:
    search_id, node_id, bundle = at_home_and_away(client, db)
    job = json.loads(bundle.verifications[1])["job"]
    alone = bundle.model_copy(update={"jobs": [bundle.verifications[1]]})
    line = {**verdict_line(alone), "verdict": judged(job)}
    merged(client, screened(bundle, 0, 1.5))
    (waiting,) = (one for one in attempts(db, search_id) if one.kind == "verify")
    assert steps.claim(db, waiting.id, "a worker", 30.0, time.time()) is not None
    assert merged(client, line)["late"] == 1
    assert client.post(f"/v1/nodes/{node_id}/ban").status_code == 200
    assert merged(client, line)["lines"][0]["detail"] == "node #1 has no accepted candidate to verify"


def test_a_screening_that_was_done_before_has_no_digest_of_the_host(client: TestClient, db: Database) -> None:
    search_id, node_id, bundle = at_home_and_away(client, db)
    alone = bundle.model_copy(update={"jobs": [bundle.verifications[1]]})
    line = {**verdict_line(alone), "verdict": judged(json.loads(bundle.verifications[1])["job"])}
    assert refusal(client, {**line, "screening_digest": "0" * 64})[0] == "screening_digest"
    assert refusal(client, {**line, "attempt_id": "at_" + "0" * 26})[0] == "attempt_id"
    assert merged(client, line)["merged"] == 1
    assert merged(client, line)["already"] == 1
    assert [node.verification for node in nodes(db, search_id) if node.id == node_id] == ["passed"]


@on_both_databases("db")
def test_device_seconds_limit_further_configurations_as_at_home(
    client: TestClient, db: Database, tmp_path: Path, device: type[Device]
) -> None:
    search_id = begun(client, db, [tuned(2.0), tuned(1.5)], sweep_seconds=2.0)
    bundle = bundled(client, search_id)
    shares = [json.loads(line)["job"]["limits"]["sweep_s"] for line in bundle.jobs]
    assert shares == [1.0, 1.0], "each screening has its share, with the verification that goes with it"
    travel(client, tmp_path, bundle)
    best = next(node for node in nodes(db, search_id) if node.verification == "passed")
    (further,) = verification_of(db, best.id)["configurations"]
    assert further["reason"] == "not verified: no device seconds are left for sweeps", "its sweep held them"
    assert [level for level, _ in device.asked].count("verify") == 1


def test_a_candidate_that_was_screened_before_has_a_share_of_the_sweep_seconds(
    client: TestClient, db: Database
) -> None:
    """It is verified once: without a share its further configurations never would be."""
    *_, bundle = at_home_and_away(client, db, sweep_seconds=12.0)
    (job,), (own, before) = bundle.jobs, bundle.verifications
    assert json.loads(job)["job"]["limits"]["sweep_s"] == json.loads(own)["further"]["sweep_s"] == 5.5
    assert json.loads(before)["further"]["sweep_s"] == 5.5


def unreserved(db: Database, search_id: str) -> float:
    with db.writing() as session:
        left = unreserved_seconds(session, session.get_one(SearchRow, search_id))
    assert left is not None
    return left


def promised(bundle: BundleDocument) -> float:
    """The sweep seconds that a bundle's host may hold in all."""
    own = sum(json.loads(line)["job"]["limits"].get("sweep_s", 0.0) for line in bundle.jobs)
    return own + sum(json.loads(line)["further"]["sweep_s"] for line in bundle.verifications[bundle.count :])


@on_both_databases("db")
def test_bundles_that_are_out_at_once_share_the_sweep_seconds(
    client: TestClient, db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Verifications of what was screened before have no step; each bundle that carries one has seconds for it."""
    monkeypatch.setitem(POLICY, "ideas", 4)
    monkeypatch.setattr(bundling, "MOST_JOBS", 1)
    search_id = begun(client, db, [tuned(2.0), tuned(1.5), tuned(1.4), tuned(1.3)], sweep_seconds=13.0)
    screen_at_home(db, search_id)
    assert unreserved(db, search_id) == 12.0
    out = [bundled(client, search_id) for _ in range(3)]
    assert [(bundle.count, len(bundle.verifications)) for bundle in out] == [(1, 2)] * 3
    assert [promised(bundle) for bundle in out] == [6.0, 4.0, 2.0], "two equal parts of what is left, each"
    assert unreserved(db, search_id) == 0.0


@on_both_databases("db")
def test_what_a_bundle_reserved_is_there_again_once_it_is_merged_or_dropped(client: TestClient, db: Database) -> None:
    search_id, node_id, bundle = at_home_and_away(client, db, sweep_seconds=12.0)
    assert promised(bundle) == 11.0
    assert unreserved(db, search_id) == 0.0
    assert client.delete(f"/v1/bundles/{bundle.id}").status_code == 200
    assert unreserved(db, search_id) == 11.0
    bundle = bundled(client, search_id)
    assert unreserved(db, search_id) == 0.0
    merged(client, swept_line(bundle))
    assert unreserved(db, search_id) == 10.0, "no screening is out: what is wanted yet is a step that waits"
    alone = bundle.model_copy(update={"jobs": [bundle.verifications[1]]})
    line = {**verdict_line(alone), "verdict": judged(json.loads(bundle.verifications[1])["job"])}
    assert merged(client, line)["merged"] == 1, "a reservation that has lapsed refuses no verdict"
    assert [node.verification for node in nodes(db, search_id) if node.id == node_id] == ["passed"]


@on_both_databases("db")
def test_what_a_screening_left_of_its_share_is_kept_for_its_verification(client: TestClient, db: Database) -> None:
    search_id = begun(client, db, [tuned(2.0), tuned(1.5)], sweep_seconds=12.0)
    bundle = bundled(client, search_id)
    assert unreserved(db, search_id) == 0.0
    first = swept_line(bundle)
    merged(client, first)
    assert unreserved(db, search_id) == 0.0, "5 s are the verification's, 6 s the other screening's; 1 s is spent"
    assert merged(client, verification_line(bundle, by=first))["merged"] == 1
    assert unreserved(db, search_id) == 5.0, "it held nothing"
    merged(client, swept_line(bundle, 1))
    assert unreserved(db, search_id) == 10.0


@pytest.mark.parametrize("outcome", ["rejected", "no leader"])
@on_both_databases("db")
def test_nothing_is_kept_for_a_verification_that_sweeps_nothing(client: TestClient, db: Database, outcome: str) -> None:
    """A candidate that was rejected is not verified, and one without leaders has no further configurations."""
    search_id = begun(client, db, [tuned(0.0 if outcome == "rejected" else 2.0), tuned(1.5)], sweep_seconds=12.0)
    bundle = bundled(client, search_id)
    line = swept_line(bundle, configurations=[ENTRY])
    if outcome == "rejected":
        line["verdict"] = judged(json.loads(bundle.jobs[0])["job"])
    assert merged(client, line)["merged"] == 1
    assert unreserved(db, search_id) == 5.0, "6 s are the other screening's, 1 s is spent"


# Hostile hosts


def swept_line(bundle: BundleDocument, number: int = 0, **changes: Any) -> dict[str, Any]:
    line = screened(bundle, number, 2.0)
    line["verdict"] |= {"sweep": {**SWEEP, **changes}, "seconds": {"exclusive": 2.0}, "sweep_seconds": 1.0}
    return line


OTHER = 'TUNE = {"ROWS": [1, 2]}\nROWS = 1\n\n\ndef run(x, y, out):\n    return ROWS\n'
ENTRY = SWEEP["configurations"][0]  # type: ignore[index]


FORGED_SWEEPS: list[tuple[dict[str, Any], str]] = [
    ({"chosen": {"ROWS": 2}}, "verdict.sweep.chosen"),
    ({"chosen": {"BLOCK": 64}, "configurations": [ENTRY]}, "verdict.sweep.chosen"),
    ({"configurations": []}, "verdict.sweep.chosen"),
    ({"configurations": [{**ENTRY, "failure": "wrong"}]}, "verdict.sweep.chosen"),
    ({"configurations": [ENTRY, {**ENTRY, "values": {"ROWS": 2}}]}, "verdict.sweep.configurations[1].values"),
    ({"configurations": [ENTRY, ENTRY]}, "verdict.sweep.configurations[1].values"),
    ({"configurations": [ENTRY, {**ENTRY, "values": {"BLOCK": 512}}]}, "verdict.sweep.configurations[1].values"),
    ({"configurations": [{**ENTRY, "time_us": {"small": 1.0}}]}, "verdict.sweep.configurations[0].time_us"),
    ({"configurations": [{**ENTRY, "rounds": -1}]}, "verdict.sweep.configurations[0].rounds"),
    ({"configurations": [{**ENTRY, "note": "x"}]}, "verdict.sweep.configurations[0].note"),
    ({"left_out": 1}, "verdict.sweep.left_out"),
    ({"left_out": -1}, "verdict.sweep.left_out"),
    ({"not_compiled": 1}, "verdict.sweep.not_compiled"),
    (
        {"configurations": [{**ENTRY, "time_us": {"large": 1e-300}}]},
        "verdict.sweep.configurations[0].time_us.large",
    ),
    ({"seconds": -1.0}, "verdict.sweep.seconds"),
    ({"more": 1}, "verdict.sweep.more"),
]


def test_a_sweep_that_is_not_the_candidates_is_refused(client: TestClient, db: Database) -> None:
    """By its field, and a refusal changes nothing: the next one finds the same job."""
    search_id = begun(client, db, [tuned(2.0), OTHER])
    bundle = bundled(client, search_id)
    for changes, field in FORGED_SWEEPS:
        assert refusal(client, swept_line(bundle, **changes))[0] == field, changes
        assert nodes(db, search_id)[1].state == "judging", changes
    assert merged(client, swept_line(bundle))["merged"] == 1
    assert refusal(client, swept_line(bundle, 1))[0] == "verdict.sweep.chosen", "another candidate's sweep"


def test_a_sweep_that_was_not_to_be_made_is_refused(client: TestClient, db: Database) -> None:
    search_id = created(db)
    baselines = verdict_line(bundled(client, search_id))
    forged = {**baselines, "verdict": {**baselines["verdict"], "sweep": SWEEP}}
    assert refusal(client, forged)[0] == "verdict.sweep"
    merged(client, baselines)
    write(db, search_id, [steps_support.source(1), tuned(2.0)])
    bundle = bundled(client, search_id)
    field, expected = refusal(client, swept_line(bundle))
    assert (field, expected) == ("verdict.sweep", "none: its candidate leaves no number to a sweep")
    line = screened(bundle, 0, 2.0)
    line["verdict"] |= {"seconds": {"exclusive": 2.0}, "sweep_seconds": 1.0}
    assert refusal(client, line)[0] == "verdict.sweep_seconds"


def test_a_sweep_without_device_seconds_is_refused(client: TestClient, db: Database) -> None:
    search_id = created(db, sweep_seconds=1.0)
    merged(client, verdict_line(bundled(client, search_id)))
    with db.writing() as session:
        session.get_one(SearchRow, search_id).sweep_seconds = 1.0
    write(db, search_id, [tuned(2.0), tuned(1.5)])
    field, expected = refusal(client, swept_line(bundled(client, search_id)))
    assert (field, expected) == ("verdict.sweep", "none: its job allows no device seconds")


def further_of(source: str, values: dict[str, int], verdict: dict[str, Any]) -> dict[str, Any]:
    """What a host tells of a further configuration."""
    text = specialise(source, values)
    judged_so = {name: part for name, part in verdict.items() if name not in ("configurations", "sweep_seconds")}
    return {
        "values": values,
        "source": text,
        "source_digest": normalised_digest(text),
        "reason": "right",
        "verdict": judged_so,
    }


def test_forged_further_configurations_are_refused_by_their_field(client: TestClient, db: Database) -> None:
    search_id = begun(client, db, [tuned(2.0), tuned(1.5)])
    bundle = bundled(client, search_id)
    screening = swept_line(bundle)
    line = verification_line(bundle, by=screening)
    merged(client, screening, screened(bundle, 1, 1.5))
    source = nodes(db, search_id)[1].source or ""
    honest = further_of(source, LED, line["verdict"])
    path = "verdict.configurations[0]"

    def refused(*configurations: Any, **changes: Any) -> str:
        return refusal(client, {**line, "verdict": {**line["verdict"], "configurations": configurations, **changes}})[0]

    assert refused(honest, honest, honest) == "verdict.configurations", "more than any sweep has"
    assert refused(honest, honest) == "verdict.configurations[1].values", "twice"
    assert refused(further_of(source, {"BLOCK": 64}, line["verdict"])) == f"{path}.values", "it did not lead"
    assert refused({**honest, "values": {"ROWS": 2}}) == f"{path}.values", "another candidate's"
    assert refused({**honest, "source": OTHER}) == f"{path}.source"
    assert refused({**honest, "source_digest": "0" * 64}) == f"{path}.source_digest"
    assert refused({**honest, "more": 1}) == f"{path}.more"
    inner = honest["verdict"]
    for changes, field in (
        ({"level": "screen"}, "verdict.level"),
        ({"id": "bj_" + "0" * 26}, "verdict.id"),
        ({"language": "triton"}, "verdict.language"),
        ({"workloads": inner["workloads"][:-1]}, "verdict.workloads"),
        ({"score": -1.0}, "verdict.score"),
        ({"bundle": {}}, "verdict.bundle"),
        ({"configurations": []}, "verdict.configurations"),
        ({"sweep": SWEEP}, "verdict.sweep"),
        ({"more": 1}, "verdict.more"),
        ({"reason": None}, "verdict.reason"),
    ):
        assert refused({**honest, "verdict": {**inner, **changes}}) == f"{path}.{field}"
    assert refused(honest, verdict="rejected") == "verdict.configurations"
    assert refused(honest, sweep=SWEEP) == "verdict.sweep"
    assert nodes(db, search_id)[1].verification == "open"
    assert merged(client, {**line, "verdict": {**line["verdict"], "configurations": [honest]}})["merged"] == 1


def test_configurations_of_a_candidate_without_a_sweep_are_refused(client: TestClient, db: Database) -> None:
    search_id = begun(client, db, [tuned(2.0), tuned(1.5)])
    bundle = bundled(client, search_id)
    unswept = screened(bundle, 0, 2.0)
    line = verification_line(bundle, by=unswept)
    merged(client, unswept, screened(bundle, 1, 1.5))
    honest = further_of(nodes(db, search_id)[1].source or "", LED, line["verdict"])
    forged = {**line, "verdict": {**line["verdict"], "configurations": [honest]}}
    assert refusal(client, forged) == (
        "verdict.configurations[0].values",
        "one of those that led in the sweep of its screening, each once: []",
    )


def test_a_verification_takes_no_device_seconds_of_sweeps_but_those_of_its_configurations(
    client: TestClient, db: Database
) -> None:
    """Others would be charged on the search's limit for nothing, or configurations verified beyond it."""
    search_id = begun(client, db, [tuned(2.0), tuned(1.5)])
    bundle = bundled(client, search_id)
    screening = swept_line(bundle)
    line = verification_line(bundle, by=screening)
    merged(client, screening, screened(bundle, 1, 1.5))
    own = {**line["verdict"], "seconds": {"exclusive": 2.0}}
    further = further_of(nodes(db, search_id)[1].source or "", LED, own)
    untimed = {name: part for name, part in further.items() if name != "verdict"}
    whole = {**own, "seconds": {"exclusive": 4.0}}
    for configurations, held_s in (([], 3.0), ([untimed], 3.0), ([further], 3.0), ([further], 0.0)):
        forged = {**whole, "configurations": configurations, "sweep_seconds": held_s}
        assert refusal(client, {**line, "verdict": forged})[0] == "verdict.sweep_seconds"
    honest = {**whole, "configurations": [further], "sweep_seconds": 2.0}
    assert merged(client, {**line, "verdict": honest})["merged"] == 1
