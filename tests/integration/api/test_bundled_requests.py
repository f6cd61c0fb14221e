"""What a bundle carries beside steps: profiles that wait for a judge, and what merging makes of their results."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from fastapi.testclient import TestClient

from tests.integration.api.test_bundle_trips import write
from tests.integration.api.test_bundles import bundled, created, events, merged, nodes, refusal, unjudged_line
from tests.integration.steps.test_survivor_profiles import KERNEL, profiled
from tests.services import on_both_databases
from tests.support import steps_support
from tests.support.api_support import problem
from warpsmith.kernels_db.store.db import Database
from warpsmith.kernels_db.store.profiles import SEND_AGAIN_S, claim_profile, latest_metrics
from warpsmith.kernels_db.store.tables import NodeRow, ProfileRow
from warpsmith.service.documents.bundles import BundleDocument
from warpsmith.workers import steps


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


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"level": "screen"}, "verdict.profile"),
        ({"verdict": "accepted"}, "verdict.verdict"),
        ({"language": "triton"}, "verdict.language"),
        ({"profile": {"workload": "another"}}, "verdict.profile.workload"),
        (
            {"profile": {"rows": [{"name": "x" * 301, "kind": "kernel", "count": 1, "total_us": 1, "mean_us": 1}]}},
            "verdict.profile.rows[0].name",
        ),
        (
            {"profile": {"rows": [{"name": "x", "kind": "kernel", "count": 1, "total_us": -1, "mean_us": 1}]}},
            "verdict.profile.rows[0].total_us",
        ),
        (
            {"profile": {"nsight": {"kernels": [{**KERNEL, "metrics": {"time": 1e31}}]}}},
            "verdict.profile.nsight.kernels[0].metrics.time",
        ),
    ],
)
def test_a_forged_profile_is_refused(changes: dict[str, Any], field: str, client: TestClient, db: Database) -> None:
    search_id, node_id = waiting(client, db)
    line = result_line(bundled(client, search_id), profiled())
    profile = {**line["verdict"]["profile"], **changes.get("profile", {})}
    assert refusal(client, {**line, "verdict": {**line["verdict"], **changes, "profile": profile}})[0] == field
    assert profile_of(db, node_id).state == "running"
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
