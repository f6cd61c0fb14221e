"""What a bundle carries beside steps: profiles and tries that wait for a judge, and what merging makes of them."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from fastapi.testclient import TestClient
from sqlalchemy import event, select

from tests.integration.api.test_bundle_trips import write
from tests.integration.api.test_bundles import (
    bundled,
    created,
    events,
    merged,
    nodes,
    refusal,
    unjudged_line,
    verdict_line,
)
from tests.integration.steps.test_survivor_profiles import KERNEL, ROW, profiled
from tests.services import on_both_databases
from tests.support import steps_support
from tests.support.api_support import problem
from tests.support.tried import FAST, RIGHT, announce
from warpsmith.kernels_db.store.db import Database
from warpsmith.kernels_db.store.profiles import SEND_AGAIN_S, claim_profile, latest_metrics
from warpsmith.kernels_db.store.tables import AttemptRow, NodeRow, ProfileRow, SearchRow, TryRow
from warpsmith.service.documents.bundles import BundleDocument
from warpsmith.service.views.waiting import list_waiting
from warpsmith.workers import steps
from warpsmith.workers.judge.gates import traces
from warpsmith.workers.steps.trying import WAITS_S, claim_try, reconcile_tries


def waiting(client: TestClient, db: Database) -> tuple[str, str]:
    """A search and its candidate whose screening is out in a bundle, and of which a profile is asked for."""
    search_id = created(db)
    bundled(client, search_id)
    write(db, search_id, [steps_support.source(1)])
    bundled(client, search_id)
    node_id = nodes(db, search_id)[1].id
    assert client.post(f"/v1/nodes/{node_id}/profile").json()["state"] == "pending"
    return search_id, node_id


def result_line(bundle: BundleDocument, document: Any, number: int = 0) -> dict[str, Any]:
    """A line of verdicts.jsonl with `document` as the verdict on a job of the bundle, which times nothing."""
    job = json.loads(bundle.jobs[number])
    of_job = {"id": job["nonce"], "op": job["job"]["op"]["name"], "target": job["job"]["target"], "language": "cpp"}
    untimed = {"sandbox": {"level": "isolated", "layers": []}, "workloads": [], "score": None, "score_ci95": None}
    verdict = {**document, **untimed, **of_job}
    return {name: job[name] for name in job if name != "job"} | {"verdict": verdict, "host": {"name": "node7"}}


def profile_of(db: Database, node_id: str) -> ProfileRow:
    with db.reading() as session:
        return session.query(ProfileRow).where(ProfileRow.node_id == node_id).one()


@on_both_databases("db")
def test_a_profile_travels_and_its_metrics_are_told_of_that_code(client: TestClient, db: Database) -> None:
    search_id, node_id = waiting(client, db)
    found = client.get(f"/v1/searches/{search_id}").json()["waiting_for"]
    assert "no live judge worker for cpu:x86_64: 1 profile asked for" in [item["detail"] for item in found]
    bundle = bundled(client, search_id)
    assert (bundle.count, bundle.verifications) == (1, [])
    job = json.loads(bundle.jobs[0])
    assert (job["job"]["level"], job["attempt_id"]) == ("profile", profile_of(db, node_id).id)
    assert job["job"]["candidate"]["source"] == nodes(db, search_id)[1].source
    found = client.get(f"/v1/searches/{search_id}").json()["waiting_for"]
    assert "1 profile in a bundle: warpsmith merge DIR brings the result" in [item["detail"] for item in found]
    with db.writing() as session:
        assert claim_profile(session, job["attempt_id"], "a worker", 900.0, time.time()) is None
    again = client.post(f"/v1/nodes/{node_id}/profile").json()
    assert (again["id"], again["state"]) == (job["attempt_id"], "running"), "no time ends what is out in a bundle"
    (listed, *_) = client.get("/v1/bundles").json()["items"]
    assert (listed["jobs"], listed["merged"], listed["out"]) == (1, 0, 1)

    line = result_line(bundle, profiled())
    assert merged(client, line)["merged"] == 1
    with db.reading() as session:
        assert latest_metrics(session, session.get_one(NodeRow, node_id)) == (KERNEL,)
    told = client.get(f"/v1/nodes/{node_id}/profile").json()
    assert (told["state"], told["device"], told["workload"]) == ("done", "Example GPU", "large")
    assert merged(client, line)["already"] == 1
    assert refusal(client, {**line, "verdict": {**line["verdict"], "reason": "better"}})[0] == "nonce"
    (listed, *_) = client.get("/v1/bundles").json()["items"]
    assert (listed["jobs"], listed["merged"], listed["out"]) == (1, 1, 0)
    assert nodes(db, search_id)[1].state == "judging", "nothing of the tree changes by it"


def test_a_profile_of_other_code_than_the_node_has_by_now_is_not_kept(client: TestClient, db: Database) -> None:
    search_id, node_id = waiting(client, db)
    bundle = bundled(client, search_id)
    with db.writing() as session:
        session.get_one(NodeRow, node_id).source = "# repaired meanwhile\n" + steps_support.source(1)
    line = result_line(bundle, profiled())
    told = merged(client, line)["lines"][0]
    assert (told["outcome"], told["detail"]) == ("late", "its node has other code by now: ask for a profile of that")
    found = client.get(f"/v1/nodes/{node_id}/profile").json()
    assert (found["state"], found["reason"], found["rows"]) == ("failed", told["detail"], [])
    with db.reading() as session:
        assert latest_metrics(session, session.get_one(NodeRow, node_id)) == ()
    assert merged(client, line)["already"] == 1


FORGED_PROFILES: list[tuple[dict[str, Any], str]] = [
    ({"level": "screen"}, "verdict.profile"),
    ({"verdict": "accepted"}, "verdict.verdict"),
    ({"language": "triton"}, "verdict.language"),
    ({"profile": {"workload": "another"}}, "verdict.profile.workload"),
    ({"profile": {"more": 1}}, "verdict.profile.more"),
    ({"profile": {"rows": [{**ROW, "more": 1}]}}, "verdict.profile.rows[0].more"),
    ({"profile": {"rows": [{**ROW, "launch": {"more": 1}}]}}, "verdict.profile.rows[0].launch.more"),
    ({"profile": {"nsight": {"kernels": [], "more": 1}}}, "verdict.profile.nsight.more"),
    ({"profile": {"nsight": {"kernels": [{**KERNEL, "more": 1}]}}}, "verdict.profile.nsight.kernels[0].more"),
    (
        {"profile": {"nsight": {"kernels": [], "sandbox": {"level": "isolated", "layers": [], "more": 1}}}},
        "verdict.profile.nsight.sandbox.more",
    ),
    ({"profile": {"trace": {"more": 1}}}, "verdict.profile.trace.more"),
    (
        {"profile": {"trace": {"traceEvents": [{"ph": "X", "more": 1}]}}},
        "verdict.profile.trace.traceEvents[0].more",
    ),
    (
        {"profile": {"trace": {"traceEvents": [{"args": {"more": 1}}]}}},
        "verdict.profile.trace.traceEvents[0].args.more",
    ),
    (
        {"profile": {"rows": [{"name": "x" * 301, "kind": "kernel", "count": 1, "total_us": 1, "mean_us": 1}]}},
        "verdict.profile.rows[0].name",
    ),
    (
        {"profile": {"rows": [{"name": "x", "kind": "kernel", "count": 1, "total_us": -1, "mean_us": 1}]}},
        "verdict.profile.rows[0].total_us",
    ),
    (
        {"profile": {"rows": [{"name": "x", "kind": "k" * 301, "count": 1, "total_us": 1, "mean_us": 1}]}},
        "verdict.profile.rows[0].kind",
    ),
    (
        {"profile": {"nsight": {"kernels": [{**KERNEL, "name": "x" * 301}]}}},
        "verdict.profile.nsight.kernels[0].name",
    ),
    (
        {"profile": {"nsight": {"kernels": [{**KERNEL, "metrics": {"x" * 301: 1.0}}]}}},
        f"verdict.profile.nsight.kernels[0].metrics.{'x' * 301}"[:200],
    ),
    (
        {"profile": {"nsight": {"kernels": [{**KERNEL, "metrics": {"time": 1e31}}]}}},
        "verdict.profile.nsight.kernels[0].metrics.time",
    ),
]


def test_a_forged_profile_is_refused(client: TestClient, db: Database) -> None:
    """By its field, and a refusal changes nothing: the next one finds the same job."""
    search_id, node_id = waiting(client, db)
    line = result_line(bundled(client, search_id), profiled())
    for changes, field in FORGED_PROFILES:
        profile = {**line["verdict"]["profile"], **changes.get("profile", {})}
        forged = {**line, "verdict": {**line["verdict"], **changes, "profile": profile}}
        assert refusal(client, forged)[0] == field, changes
        assert profile_of(db, node_id).state == "running", changes
    assert merged(client, line)["merged"] == 1


def test_a_step_s_verdict_is_none_on_a_profile(client: TestClient, db: Database) -> None:
    search_id, _ = waiting(client, db)
    line = result_line(bundled(client, search_id), steps_support.verdict("screen", "accepted", 2.0))
    assert refusal(client, line) == ("verdict.level", "'profile'")


@on_both_databases("db")
def test_a_profile_that_was_dropped_waits_again_and_one_that_could_not_be_made_ends(
    client: TestClient, db: Database
) -> None:
    search_id, node_id = waiting(client, db)
    bundle = bundled(client, search_id)
    assert client.delete(f"/v1/bundles/{bundle.id}").json()["returned"] == 1
    assert profile_of(db, node_id).state == "pending"
    assert refusal(client, result_line(bundle, profiled()))[0] == "nonce"
    assert events(db, search_id, "bundle.dropped")[-1]["jobs"] == 1
    again = bundled(client, search_id)
    line = unjudged_line(again)
    told = merged(client, line)["lines"][0]
    assert (told["outcome"], told["detail"]) == ("unjudged", "died: its driver fell")
    found = client.get(f"/v1/nodes/{node_id}/profile").json()
    assert (found["state"], found["reason"]) == (
        "failed",
        "not judged by the bundle's host: died: its driver fell",
    )
    assert merged(client, line, result_line(again, profiled()))["late"] == 2
    assert client.get(f"/v1/bundles/{again.id}/unjudged").json() == [], "nothing is left to be settled"


@on_both_databases("db")
def test_of_a_search_that_ended_profiles_alone_travel(client: TestClient, db: Database) -> None:
    search_id, node_id = waiting(client, db)
    steps.cancel(db, search_id, time.time())
    bundle = bundled(client, search_id)
    assert bundle.count == 1
    problem(client.post(f"/v1/searches/{search_id}/bundles"), 409, "wrong-state")
    last = events(db, search_id, "search.cancelled"), events(db, search_id, "bundle.created")
    assert merged(client, result_line(bundle, profiled()))["merged"] == 1
    assert profile_of(db, node_id).state == "done"
    assert (events(db, search_id, "search.cancelled"), events(db, search_id, "bundle.created")) == last
    assert events(db, search_id, "bundle.merged") == [], "nothing comes after the event that ends a search"
    assert client.delete(f"/v1/searches/{search_id}").status_code == 200


def test_a_lost_message_of_a_profile_is_sent_again_after_its_bundle(client: TestClient, db: Database) -> None:
    search_id, node_id = waiting(client, db)
    bundle = bundled(client, search_id)
    client.delete(f"/v1/bundles/{bundle.id}")
    row = profile_of(db, node_id)
    assert row.sent_at is not None
    with db.writing() as session:
        session.get_one(ProfileRow, row.id).sent_at = row.sent_at - SEND_AGAIN_S
    client.post(f"/v1/nodes/{node_id}/profile")
    assert (profile_of(db, node_id).sent_at or 0.0) >= row.sent_at


# Tries


def trying(client: TestClient, db: Database, level: str = "screen") -> tuple[str, str]:
    """A search whose baselines are out in a bundle, and a try of a candidate for its root."""
    search_id = created(db)
    bundled(client, search_id)
    return search_id, tried(client, nodes(db, search_id)[0].id, level)


def tried(client: TestClient, node_id: str, level: str = "screen") -> str:
    answer = client.post(f"/v1/nodes/{node_id}/tries", json={"source": RIGHT, "level": level})
    assert answer.status_code == 202, answer.text
    found: str = answer.json()["id"]
    return found


def screened_line(bundle: BundleDocument, **changes: Any) -> dict[str, Any]:
    """A line of verdicts.jsonl on the try in the bundle: right, and 2.5 times as fast."""
    return verdict_line(bundle, language="cpp", score=2.5, score_ci95=[2.4, 2.6], seconds=FAST["seconds"], **changes)


@on_both_databases("db")
def test_a_try_travels_and_its_verdict_is_for_those_who_asked(client: TestClient, db: Database) -> None:
    search_id, try_id = trying(client, db)
    found = client.get(f"/v1/searches/{search_id}").json()["waiting_for"]
    assert "no live judge worker for cpu:x86_64: 1 try asked for" in [item["detail"] for item in found]
    bundle = bundled(client, search_id)
    job = json.loads(bundle.jobs[0])
    assert (bundle.count, job["attempt_id"], job["job"]["level"]) == (1, try_id, "screen")
    assert (job["job"]["candidate"]["source"], bundle.verifications) == (RIGHT, [])
    assert claim_try(db, try_id, "a worker", 30.0, time.time()) is None
    assert reconcile_tries(db, time.time() + 30 * 86400, steps_support.SETTINGS) == []
    assert client.get(f"/v1/tries/{try_id}").json()["state"] == "running", "it waits as long as its bundle is out"
    line = screened_line(bundle)
    report = merged(client, line, line)
    assert [(one["outcome"], one["of"]) for one in report["lines"]] == [("merged", "try"), ("already", "try")]
    told = client.get(f"/v1/tries/{try_id}").json()
    assert (told["state"], told["verdict"], told["score"], told["device_s"]) == ("done", "accepted", 2.5, 7.5)
    assert (told["spent_s"], [one["id"] for one in told["workloads"]]) == (7.5, ["large"])
    with db.reading() as session:
        row, search = session.get_one(TryRow, try_id), session.get_one(SearchRow, search_id)
        assert (row.document["bundle"]["id"], row.document["workloads"][0]["samples"]) == (bundle.id, {})
        assert (search.try_seconds, search.gpu_seconds, search.candidates) == (7.5, 0.0, 0)
    assert events(db, search_id, "node.tried")[0]["verdict"] == "accepted"
    assert refusal(client, {**line, "verdict": {**line["verdict"], "reason": "better"}})[0] == "nonce"


def test_what_a_try_s_verdict_lacks_is_missed_by_nobody(client: TestClient, db: Database) -> None:
    """A profile without a table, and a screening without times: both are told, and the next request is built."""
    search_id, profiled_id = trying(client, db, "profile")
    screened_id = tried(client, nodes(db, search_id)[0].id)
    bundle = bundled(client, search_id)
    bare = result_line(bundle, steps_support.verdict("profile", "ambiguous"))
    untimed = result_line(bundle, steps_support.verdict("screen", "accepted"), 1)
    assert merged(client, bare, untimed)["merged"] == 2
    assert client.get(f"/v1/tries/{profiled_id}").json()["profile"] == []
    told = client.get(f"/v1/tries/{screened_id}").json()
    assert (told["state"], told["score"], told["workloads"]) == ("done", None, [])
    (ideate, *_) = write(db, search_id, [steps_support.source(1)])
    assert ideate.kind == "ideate"
    assert client.get(f"/v1/searches/{search_id}/story").status_code == 200


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"level": "profile"}, "verdict.level"),
        ({"language": "triton"}, "verdict.language"),
        ({"sweep": {"chosen": {"BLOCK": 1}, "configurations": [], "seconds": 0.0}}, "verdict.sweep"),
        ({"workloads": []}, "verdict.workloads"),
    ],
)
def test_a_forged_try_is_refused(changes: dict[str, Any], field: str, client: TestClient, db: Database) -> None:
    search_id, try_id = trying(client, db)
    line = screened_line(bundled(client, search_id))
    forged = {**line["verdict"], **changes}
    if changes.get("level") == "profile":
        forged["verdict"] = "ambiguous"
    assert refusal(client, {**line, "verdict": forged})[0] == field
    assert client.get(f"/v1/tries/{try_id}").json()["state"] == "running"


@on_both_databases("db")
def test_a_try_that_a_bundle_gave_back_waits_anew_and_then_expires(client: TestClient, db: Database) -> None:
    search_id, try_id = trying(client, db)
    bundle = bundled(client, search_id)
    with db.writing() as session:  # the trip took days
        session.get_one(TryRow, try_id).created_at -= 3 * 86400.0
    assert client.delete(f"/v1/bundles/{bundle.id}").json()["returned"] == 1
    now = time.time()
    assert [one.attempt_id for one in reconcile_tries(db, now + WAITS_S / 2, steps_support.SETTINGS)] == [try_id]
    assert client.get(f"/v1/tries/{try_id}").json()["state"] == "pending"
    assert refusal(client, screened_line(bundle))[0] == "nonce"
    assert reconcile_tries(db, now + WAITS_S + 60.0, steps_support.SETTINGS) == []
    told = client.get(f"/v1/tries/{try_id}").json()
    assert (told["state"], told["reason"]) == ("failed", f"no judge of cpu:x86_64 took it within {WAITS_S:g} s")


@on_both_databases("db")
def test_a_try_that_its_host_could_not_judge_ends_and_says_why(client: TestClient, db: Database) -> None:
    search_id, try_id = trying(client, db)
    bundle = bundled(client, search_id)
    (line,) = merged(client, unjudged_line(bundle))["lines"]
    assert (line["outcome"], line["of"], line["detail"]) == ("unjudged", "try", "died: its driver fell")
    told = client.get(f"/v1/tries/{try_id}").json()
    assert (told["state"], told["reason"]) == ("failed", "not judged by the bundle's host: died: its driver fell")
    assert merged(client, screened_line(bundle))["late"] == 1


def test_a_try_that_only_compiles_stays_and_one_beyond_the_seconds_ends(client: TestClient, db: Database) -> None:
    announce(db, "cpu:x86_64", time.time())
    search_id, try_id = trying(client, db, "compile")
    problem(client.post(f"/v1/searches/{search_id}/bundles"), 409, "wrong-state")
    late = tried(client, nodes(db, search_id)[0].id)
    with db.writing() as session:
        session.get_one(SearchRow, search_id).try_seconds = 300.0
    problem(client.post(f"/v1/searches/{search_id}/bundles"), 409, "wrong-state")
    assert "300 device seconds spent" in client.get(f"/v1/tries/{late}").json()["reason"]
    assert client.get(f"/v1/tries/{try_id}").json()["state"] == "pending"


@on_both_databases("db")
def test_a_search_that_ended_meanwhile_keeps_the_verdict_of_a_try(client: TestClient, db: Database) -> None:
    search_id, try_id = trying(client, db)
    bundle = bundled(client, search_id)
    other = tried(client, nodes(db, search_id)[0].id)
    dropped = bundled(client, search_id)
    steps.cancel(db, search_id, time.time())
    assert merged(client, screened_line(bundle))["merged"] == 1
    assert client.get(f"/v1/tries/{try_id}").json()["state"] == "done"
    assert client.delete(f"/v1/bundles/{dropped.id}").json()["returned"] == 0
    told = client.get(f"/v1/tries/{other}").json()
    assert (told["state"], told["reason"]) == ("failed", "the search ended first")
    assert events(db, search_id, "node.tried") == [], "nothing comes after the event that ends a search"
    assert client.delete(f"/v1/searches/{search_id}").status_code == 200


def test_a_profile_as_the_judge_writes_it_is_taken(client: TestClient, db: Database) -> None:
    search_id, node_id = waiting(client, db)
    line = result_line(bundled(client, search_id), profiled())
    facts = {"grid": [1, 1, 1], "block": [32, 1, 1], "registers": 16, "shared_bytes": 0, "occupancy": 50.0}
    kernel = {"name": "k", "cat": "kernel", "ph": "X", "ts": 0.5, "dur": 2, "pid": 0, "tid": "7"}
    told = traces.read({"traceEvents": [{**kernel, "args": {"stream": 7, "registers per thread": 16}}]})
    (row,) = traces.table(told)
    assert row["launch"] == {"registers": 16}
    line["verdict"]["profile"] |= {"rows": [{**row, "launch": facts}], "trace": traces.chrome(told)}
    assert merged(client, line)["merged"] == 1
    assert client.get(f"/v1/nodes/{node_id}/profile").json()["state"] == "done"


def test_what_waits_for_a_judge_asks_the_workers_once(db: Database, client: TestClient) -> None:
    search_id, _ = waiting(client, db)
    asked: list[str] = []

    def note(_connection: Any, _cursor: Any, statement: str, *_: Any) -> None:
        asked.append(statement)

    with db.writing() as session:  # its screening as its profile
        of_search = (AttemptRow.search_id == search_id, AttemptRow.kind == "judge")
        attempt = session.scalars(select(AttemptRow).where(*of_search).order_by(AttemptRow.id)).all()[-1]
        attempt.state, attempt.owner, attempt.lease_expires_at = "pending", None, None
    with db.reading() as session:
        event.listen(session.get_bind(), "before_cursor_execute", note)
        found = list_waiting(session, session.get_one(SearchRow, search_id), time.time(), 60.0)
    details = [item.detail for item in found]
    assert [item for item in details if item.startswith("no live judge worker")] == [
        "no live judge worker for cpu:x86_64: 1 step queued",
        "no live judge worker for cpu:x86_64: 1 profile asked for",
    ]
    assert len([one for one in asked if "FROM workers" in one]) == 1
