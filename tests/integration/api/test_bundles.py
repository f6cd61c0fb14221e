"""Bundles through the API, on both databases: taken, judged by a copy of the judge, merged, dropped, forged."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient
from sqlalchemy import select

from tests import REPOSITORY
from tests.services import on_both_databases
from tests.support import steps_support
from tests.support.api_support import client_of, fields, problem, settings_for
from tests.support.steps_support import small_policy
from tests.support.waiting import wait_until
from warpsmith.kernels_db.job.bundle import digest, ticket_of
from warpsmith.kernels_db.job.documents import HOLDOUT_LEFT_OUT
from warpsmith.kernels_db.spec.op import Op, Target, load_op
from warpsmith.kernels_db.store.db import Database
from warpsmith.kernels_db.store.tables import AttemptRow, EventRow, NodeRow, VerdictRow
from warpsmith.service.bundles.folder import JUDGE_INSTALLED, write_bundle
from warpsmith.service.bundles.judge_copy import copy_judge
from warpsmith.service.documents.bundles import BundleDocument
from warpsmith.workers import steps

NDJSON = {"Content-Type": "application/x-ndjson"}
CANDIDATES = REPOSITORY / "tests" / "candidates"
ABSENT = ("pydantic", "sqlalchemy", "celery", "fastapi", "psutil", "httpx", "typer", "jinja2", "yaml")
"""What the other host does not have."""


def small_op(examples: Path) -> Op:
    """examples/add_relu.yaml with small workloads and one baseline."""
    document = load_op(examples / "add_relu.yaml").document()
    shapes = {"large": (64, 128), "small": (16, 128), "ragged": (7, 51), "single": (1, 64), "tall": (33, 5)}
    document.pop("targets")
    for workload in document["workloads"]:
        rows, columns = shapes[workload["id"]]
        workload["axes"] = {"rows": rows, "columns": columns}
    document["objective"] = {"rank": "geomean", "baselines": ["eager"]}
    return load_op(json.dumps(document))


def created(db: Database, op: Op = steps_support.OP, target: str = "cpu") -> str:
    """A running search whose baselines wait for a judge."""
    search_id = steps.create_search(
        db,
        op,
        Target.parse(target),
        language="cpp",
        policy={"name": "idea_beam"},
        budget={},
        model={"provider": "agent"},
        now=time.time(),
    )
    steps.advance(db, search_id, time.time())
    return search_id


def bundled(client: TestClient, search_id: str, **headers: str) -> BundleDocument:
    answer = client.post(f"/v1/searches/{search_id}/bundles", headers=headers)
    assert answer.status_code == 201, answer.text
    return BundleDocument.model_validate(answer.json())


def verdict_line(bundle: BundleDocument, number: int = 0, **changes: Any) -> dict[str, Any]:
    """A line of verdicts.jsonl on a job of the bundle, by a host that lies."""
    job = json.loads(bundle.jobs[number])
    document: Any = steps_support.verdict(job["job"]["level"], "accepted", 1.0)
    for workload in document["workloads"]:
        workload["time_us"] |= {"compile": 90.0, "max_autotune": 80.0}
    document |= {
        "id": job["nonce"],
        "op": job["job"]["op"]["name"],
        "target": job["job"]["target"],
        "sandbox": {"level": "isolated", "layers": []},
        **changes,
    }
    return {**ticket_of(job), "signature": job["signature"], "verdict": document, "host": {"name": "node7"}}


def unjudged_line(bundle: BundleDocument, number: int = 0, **changes: Any) -> dict[str, Any]:
    """A line of unjudged.jsonl on a job of the bundle."""
    job = json.loads(bundle.jobs[number])
    said = {"kind": "died", "reason": "its driver fell", **changes}
    return {**ticket_of(job), "signature": job["signature"], "unjudged": said, "host": {"name": "node7"}}


def merged(client: TestClient, *lines: Any) -> dict[str, Any]:
    """Merge lines: documents, text or bytes."""
    texts = [line if isinstance(line, str | bytes) else json.dumps(line) for line in lines]
    content = b"".join((text.encode() if isinstance(text, str) else text) + b"\n" for text in texts)
    answer = client.post("/v1/bundles/merge", content=content, headers=NDJSON)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def refusal(client: TestClient, line: Any) -> tuple[str, str]:
    """The field and the expectation of a line that is refused."""
    report = merged(client, line)
    assert (report["refused"], report["merged"]) == (1, 0), report
    error = report["lines"][0]["error"]
    return error["field"], error["expected"]


def attempts(db: Database, search_id: str) -> list[AttemptRow]:
    with db.reading() as session:
        query = select(AttemptRow).where(AttemptRow.search_id == search_id).order_by(AttemptRow.id)
        return list(session.scalars(query))


def nodes(db: Database, search_id: str) -> list[NodeRow]:
    with db.reading() as session:
        return list(session.scalars(select(NodeRow).where(NodeRow.search_id == search_id).order_by(NodeRow.seq)))


def events(db: Database, search_id: str, kind: str) -> list[dict[str, Any]]:
    with db.reading() as session:
        query = select(EventRow.payload).where(EventRow.search_id == search_id, EventRow.type == kind)
        return list(session.scalars(query.order_by(EventRow.id)))


# Taken


def test_nobody_else_takes_what_is_in_a_bundle(client: TestClient, db: Database) -> None:
    search_id = created(db)
    bundle = bundled(client, search_id)
    assert (bundle.count, bundle.left, bundle.target) == (1, 0, str(steps_support.TARGET))
    (attempt, ideate) = attempts(db, search_id)
    assert ideate.kind == "ideate", "the first ideas are asked for meanwhile"
    assert steps.claim(db, attempt.id, "a worker", 30.0, time.time()) is None
    far = time.time() + 30 * 86400
    assert [message.queue for message in steps.reconcile(db, far, steps_support.SETTINGS)] == ["model"]
    assert attempts(db, search_id)[0].state == "running"
    answer = client.post(f"/v1/searches/{search_id}/bundles")
    said = problem(answer, 409, "wrong-state")["detail"]
    assert f"no step that waits for a judge, no profile and no try; its steps are out in {bundle.id}" in said
    waiting = client.get(f"/v1/searches/{search_id}").json()["waiting_for"]
    assert waiting[0]["detail"].startswith("1 step in a bundle")
    assert events(db, search_id, "bundle.created") == [{"bundle_id": bundle.id, "jobs": 1}]


def test_a_search_without_a_judge_for_its_target_waits_and_is_bundled(client: TestClient) -> None:
    body = {"op": steps_support.OP.document(), "target": "cuda:sm_90", "model": {"provider": "agent"}}
    answer = client.post("/v1/searches", json=body)
    assert answer.status_code == 202, answer.text
    waiting = client.get(answer.headers["Location"]).json()["waiting_for"]
    assert waiting[0]["detail"] == "no live judge worker for cuda:sm_90: 1 step queued"
    assert bundled(client, answer.json()["id"]).target == "cuda:sm_90"


@on_both_databases("db")
def test_asked_for_twice_under_one_key_a_bundle_is_made_once(client: TestClient, db: Database) -> None:
    search_id = created(db)
    first = bundled(client, search_id, **{"Idempotency-Key": "k1"})
    assert bundled(client, search_id, **{"Idempotency-Key": "k1"}) == first
    assert len(events(db, search_id, "bundle.created")) == 1


def test_only_a_running_search_has_jobs(client: TestClient, db: Database) -> None:
    search_id = created(db)
    steps.pause(db, search_id, "on request", time.time())
    problem(client.post(f"/v1/searches/{search_id}/bundles"), 409, "wrong-state")
    problem(client.post("/v1/searches/sr_absent/bundles"), 404, "not-found")


def test_a_key_that_is_too_short_is_named_and_not_shown(db: Database, tmp_path: Path) -> None:
    url = db.url.render_as_string(hide_password=False)
    search_id = created(db)
    with client_of(settings_for(tmp_path / "home", database_url=url, bundle_key="hush")) as client:
        found = problem(client.post(f"/v1/searches/{search_id}/bundles"), 422, "missing-setting")
    assert fields(found) == ["WARPSMITH_BUNDLE_KEY"]
    assert "hush" not in json.dumps(found)
    assert attempts(db, search_id)[0].state == "pending"


def test_a_home_that_can_keep_no_key_is_told(db: Database, tmp_path: Path) -> None:
    url = db.url.render_as_string(hide_password=False)
    search_id = created(db)
    (tmp_path / "file").write_text("")
    with client_of(settings_for(tmp_path / "file" / "home", database_url=url)) as client:
        found = problem(client.post(f"/v1/searches/{search_id}/bundles"), 422, "missing-setting")
    assert "no key can be kept" in found["errors"][0]["found"]


# Merged


@on_both_databases("db")
def test_the_first_verdict_stands_and_the_same_again_is_harmless(client: TestClient, db: Database) -> None:
    search_id = created(db)
    line = verdict_line(bundled(client, search_id))
    report = merged(client, line, line, "")
    assert [entry["outcome"] for entry in report["lines"]] == ["merged", "already"]
    assert merged(client, line)["already"] == 1
    other = json.loads(json.dumps(line))
    other["verdict"]["reason"] = "even better"
    field, expected = refusal(client, other)
    assert field == "nonce"
    assert "the first stands" in expected
    assert nodes(db, search_id)[0].state == "judged"
    assert [attempt.kind for attempt in attempts(db, search_id)] == ["judge", "ideate"]  # the search went on
    with db.reading() as session:
        (row,) = session.scalars(select(VerdictRow).where(VerdictRow.search_id == search_id))
    assert row.document["bundle"]["id"] == line["bundle_id"]
    assert row.document["bundle"]["host"] == {}
    assert events(db, search_id, "bundle.merged")[0]["host"] == {"name": "node7"}


@pytest.mark.parametrize(
    ("path", "value", "field"),
    [
        ("nonce", "bj_" + "0" * 26, "verdict.id"),
        ("bundle_id", "bn_" + "0" * 26, "bundle_id"),
        ("search_id", "sr_" + "0" * 26, "search_id"),
        ("attempt_id", "at_" + "0" * 26, "attempt_id"),
        ("job_digest", "0" * 64, "job_digest"),
        ("signature", "0" * 64, "signature"),
        ("verdict.id", "bj_" + "0" * 26, "verdict.id"),
        ("verdict.level", "screen", "verdict.level"),
        ("verdict.op", "softmax", "verdict.op"),
        ("verdict.target", "cuda:sm_90", "verdict.target"),
        ("verdict.language", "cpp", "verdict.language"),
        ("verdict.workloads", [], "verdict.workloads"),
        ("verdict.workloads.0.weight", 100.0, "verdict.workloads[0].weight"),
        ("verdict.failure", {"kind": "duplicate", "message": "", "found": 7}, "verdict.failure.found"),
        ("verdict.bundle", {}, "verdict.bundle"),
        ("verdict.score", "NaN", "verdict.score"),
    ],
)
def test_what_is_forged_is_refused_and_leaves_nothing(
    path: str, value: Any, field: str, client: TestClient, db: Database
) -> None:
    search_id = created(db)
    line = verdict_line(bundled(client, search_id))
    forged = json.loads(json.dumps(line))
    place: Any = forged
    *way, last = path.split(".")
    for name in way:
        place = place[int(name) if name.isdigit() else name]
    place[last] = value
    assert refusal(client, forged)[0] == field
    assert nodes(db, search_id)[0].state == "judging"
    assert events(db, search_id, "bundle.merged") == []
    refused = [forged, "{", b'{"x": "\xff"}']
    assert merged(client, *refused, line)["merged"] == 1, "and keeps nothing else from being merged"


def verifying(db: Database) -> str:
    """A running search whose best candidate waits for its verification."""
    now = time.time()
    driver = steps_support.Driver(db, steps_support.create(db, now), now=now)
    driver.luck.random = lambda: 1.0  # type: ignore[method-assign]  # every candidate is accepted
    waiting = driver.advance()
    while driver.attempt(waiting[0].attempt_id).kind != "verify":
        assert driver.step(waiting.pop(0))
        waiting += driver.advance()
    return driver.search_id


@pytest.mark.parametrize("lacks", ["ragged", "holdout-1"])
@on_both_databases("db")
def test_a_verification_that_lacks_a_workload_of_its_job_is_refused(
    lacks: str, client: TestClient, db: Database
) -> None:
    search_id = verifying(db)
    bundle = bundled(client, search_id)
    ids = [workload["id"] for workload in json.loads(bundle.jobs[0])["job"]["workloads"]]
    assert {"large", "ragged", "holdout-1"} <= set(ids), "hold-outs are drawn for the job"
    whole = verdict_line(bundle)
    (large, test) = whole["verdict"]["workloads"]
    whole["verdict"]["language"] = "cpp"
    whole["verdict"]["workloads"] = [large, *({**test, "id": each} for each in ids if each != "large")]
    partial = json.loads(json.dumps(whole))
    partial["verdict"]["workloads"] = [item for item in whole["verdict"]["workloads"] if item["id"] != lacks]
    field, expected = refusal(client, partial)
    assert field == "verdict.workloads"
    assert lacks in expected
    assert not [node for node in nodes(db, search_id) if node.verification == "passed"]
    more = json.loads(json.dumps(whole))
    more["verdict"]["workloads"].append({**test, "id": "another"})
    assert refusal(client, more)[0] == "verdict.workloads"
    assert merged(client, partial, whole)["merged"] == 1
    assert [node.verification for node in nodes(db, search_id) if node.verification == "passed"] == ["passed"]


@on_both_databases("db")
def test_a_drawn_hold_out_may_be_missing_where_the_verdict_notes_it(client: TestClient, db: Database) -> None:
    """The judge leaves it out where the reference itself is not right; the op's own workloads never."""
    search_id = verifying(db)
    bundle = bundled(client, search_id)
    ids = [workload["id"] for workload in json.loads(bundle.jobs[0])["job"]["workloads"]]
    line = verdict_line(bundle)
    (large, test) = line["verdict"]["workloads"]
    line["verdict"]["language"] = "cpp"
    note = f"hold-out at tokens 7 {HOLDOUT_LEFT_OUT} (the shapes differ)"

    def judged(missing: set[str], notes: int) -> Any:
        changed = json.loads(json.dumps(line))
        kept = [large, *({**test, "id": each} for each in ids if each not in {"large", *missing})]
        changed["verdict"] |= {"workloads": kept, "reason": "; ".join(["right on every workload", *[note] * notes])}
        return changed

    assert refusal(client, judged({"holdout-1", "holdout-2"}, 1))[0] == "verdict.workloads"
    assert refusal(client, judged({"ragged"}, 1))[0] == "verdict.workloads"
    assert merged(client, judged({"holdout-1", "holdout-2"}, 2))["merged"] == 1
    assert [node.verification for node in nodes(db, search_id) if node.verification == "passed"] == ["passed"]


def test_a_sweep_that_chose_what_the_candidate_does_not_have_is_refused(client: TestClient, db: Database) -> None:
    now = time.time()
    driver = steps_support.Driver(db, steps_support.create(db, now), small_policy(codes=1, ideas=1), now=now)
    work = driver.until("code")
    source = 'TUNE = {"N": [1, 2]}\nN = 1\n\n\ndef run(x, y, out):\n    return N\n'
    assert steps.complete_code(db, work.attempt_id, "me", source, "cpp", [], driver.now)
    driver.advance()
    entry = {"values": {"N": 2}, "time_us": {"large": 5.0}, "rounds": 1}
    line = verdict_line(bundled(client, driver.search_id), language="cpp")
    line["verdict"]["sweep"] = {"chosen": {"N": 3}, "configurations": [entry], "seconds": 1.0}
    assert refusal(client, line)[0] == "verdict.sweep.chosen"
    line["verdict"]["sweep"] |= {"chosen": {"N": 2}, "configurations": [{**entry, "time_us": {"large": 0.0}}]}
    assert refusal(client, line)[0] == "verdict.sweep.configurations[0].time_us.large"
    line["verdict"]["sweep"]["configurations"] = [entry]
    line["verdict"] |= {"seconds": {"exclusive": 2.0}, "sweep_seconds": 9.0}
    assert refusal(client, line)[0] == "verdict.sweep_seconds"
    line["verdict"]["sweep_seconds"] = 1.5
    assert merged(client, line)["merged"] == 1
    (node,) = (node for node in nodes(db, driver.search_id) if node.verdict == "accepted" and node.seq > 0)
    assert "N = 2" in (node.source or "")
    assert driver.search().sweep_seconds == 1.5


def test_a_rejecting_verification_ends_at_its_first_wrong_workload(client: TestClient, db: Database) -> None:
    search_id = verifying(db)
    line = verdict_line(bundled(client, search_id), verdict="rejected", score=None, score_ci95=None, language="cpp")
    line["verdict"] |= {"failure": {"kind": "wrong_value", "message": "wrong"}, "gate": "verify", "workloads": []}
    assert merged(client, line)["merged"] == 1


def test_a_file_of_another_service_is_refused(client: TestClient, db: Database) -> None:
    line = verdict_line(bundled(client, created(db)))
    foreign = json.loads(json.dumps(line).replace(line["nonce"], "bj_" + "0" * 26))
    assert refusal(client, foreign) == ("nonce", "that of a job of a bundle of this service")


def test_a_verdict_of_one_job_is_none_of_another(client: TestClient, db: Database) -> None:
    one, two = (verdict_line(bundled(client, created(db))) for _ in range(2))
    assert refusal(client, {**one, "verdict": two["verdict"]})[0] == "verdict.id"
    assert refusal(client, {**two, "verdict": one["verdict"]})[0] == "verdict.id"
    renamed = {**two["verdict"], "id": one["nonce"]}
    assert refusal(client, {**two, "nonce": one["nonce"], "verdict": renamed})[0] == "bundle_id"
    assert merged(client, one, two)["merged"] == 2


def test_a_body_that_is_none_is_a_problem(client: TestClient) -> None:
    report = client.post("/v1/bundles/merge", content=b'{"x": "\xff"}\n', headers=NDJSON).json()
    assert [line["error"]["expected"] for line in report["lines"]] == ["UTF-8"]
    problem(client.post("/v1/bundles/merge", content=b"", headers=NDJSON), 422, "invalid-input")
    problem(client.post("/v1/bundles/merge", content=b"x\n" * 1001, headers=NDJSON), 422, "invalid-input")
    problem(client.post("/v1/bundles/merge", json={}), 415, "unsupported-media-type")


# Dropped, cancelled


def test_a_dropped_bundle_returns_to_the_queue(client: TestClient, db: Database) -> None:
    search_id = created(db)
    bundle = bundled(client, search_id)
    answer = client.delete(f"/v1/bundles/{bundle.id}")
    assert answer.json() == {"id": bundle.id, "search_id": search_id, "returned": 1, "failed": 0, "merged": 0}
    field, expected = refusal(client, verdict_line(bundle))
    assert (field, expected) == ("nonce", "that of a job of a bundle that was not dropped")
    (attempt,) = (attempt for attempt in attempts(db, search_id) if attempt.kind == "judge")
    assert steps.claim(db, attempt.id, "a worker", 30.0, time.time()) is not None
    problem(client.delete(f"/v1/bundles/{bundle.id}"), 404, "not-found")
    assert events(db, search_id, "bundle.dropped") == [{"bundle_id": bundle.id, "jobs": 1, "then": "queue"}]


def test_what_was_merged_stays_when_the_bundle_is_dropped(client: TestClient, db: Database) -> None:
    search_id = created(db)
    bundle = bundled(client, search_id)
    line = verdict_line(bundle)
    assert merged(client, line)["merged"] == 1
    assert client.delete(f"/v1/bundles/{bundle.id}").json()["merged"] == 1
    assert merged(client, line)["already"] == 1


def test_a_search_that_was_cancelled_meanwhile_takes_no_verdict(client: TestClient, db: Database) -> None:
    search_id = created(db)
    bundle = bundled(client, search_id)
    client.post(f"/v1/searches/{search_id}/cancel")
    for _ in range(2):
        (told,) = merged(client, verdict_line(bundle))["lines"]
        assert (told["outcome"], told["detail"]) == ("late", "the search is cancelled")
    assert client.delete(f"/v1/bundles/{bundle.id}").json()["returned"] == 0
    assert attempts(db, search_id)[0].state == "cancelled"


def test_a_paused_search_takes_verdicts_and_waits(client: TestClient, db: Database) -> None:
    search_id = created(db)
    bundle = bundled(client, search_id)
    client.post(f"/v1/searches/{search_id}/pause")
    before = [attempt.kind for attempt in attempts(db, search_id)]
    assert merged(client, verdict_line(bundle))["merged"] == 1
    assert [attempt.kind for attempt in attempts(db, search_id)] == before == ["judge", "ideate"]


# Not judged


def settled(client: TestClient, bundle_id: str, then: str) -> dict[str, Any]:
    answer = client.post(f"/v1/bundles/{bundle_id}/unjudged", json={"then": then})
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def two_candidates(client: TestClient, db: Database) -> tuple[str, BundleDocument]:
    """A search whose two candidates are in a bundle."""
    search_id = created(db)
    assert merged(client, verdict_line(bundled(client, search_id)))["merged"] == 1
    candidates(db, search_id)
    bundle = bundled(client, search_id)
    assert bundle.count == 2
    return search_id, bundle


def test_what_its_host_could_not_judge_is_told_and_returns_to_the_queue(client: TestClient, db: Database) -> None:
    search_id, bundle = two_candidates(client, db)
    (told,) = merged(client, unjudged_line(bundle, 1))["lines"]
    assert (told["outcome"], told["detail"]) == ("unjudged", "died: its driver fell")
    assert told["bundle_id"] == bundle.id
    (job,) = client.get(f"/v1/bundles/{bundle.id}/unjudged").json()
    ticket = json.loads(bundle.jobs[1])
    assert (job["nonce"], job["attempt_id"]) == (ticket["nonce"], ticket["attempt_id"])
    assert (job["step"], job["seq"], job["reason"]) == ("judge", 2, "died: its driver fell")
    (listed,) = [item for item in client.get("/v1/bundles").json()["items"] if item["id"] == bundle.id]
    assert (listed["jobs"], listed["out"], listed["unjudged"]) == (2, 2, 1)
    waiting = [item["detail"] for item in client.get(f"/v1/searches/{search_id}").json()["waiting_for"]]
    assert any(detail.startswith("1 step in a bundle: ") for detail in waiting), waiting
    assert f"1 step not judged by a bundle's host: warpsmith bundle --show {bundle.id}" in waiting

    found = settled(client, bundle.id, "queue")
    assert (found["returned"], found["failed"], found["search_id"]) == (1, 0, search_id)
    assert [(item.state, item.error) for item in attempts(db, search_id) if item.id == ticket["attempt_id"]] == [
        ("pending", None)
    ]
    assert refusal(client, verdict_line(bundle, 1)) == ("nonce", "that of a job of a bundle that was not dropped")
    assert steps.claim(db, ticket["attempt_id"], "a worker", 30.0, time.time()) is not None
    assert merged(client, verdict_line(bundle, 0))["merged"] == 1  # the other stayed out
    assert settled(client, bundle.id, "queue")["returned"] == 0
    assert client.get(f"/v1/bundles/{bundle.id}/unjudged").json() == []


def test_what_its_host_could_not_judge_is_given_up_and_the_search_goes_on(client: TestClient, db: Database) -> None:
    search_id, bundle = two_candidates(client, db)
    assert merged(client, verdict_line(bundle, 0), unjudged_line(bundle, 1))["unjudged"] == 1
    found = settled(client, bundle.id, "fail")
    assert (found["returned"], found["failed"], found["merged"]) == (0, 1, 1)
    (node,) = [node for node in nodes(db, search_id) if node.seq == 2]
    assert (node.state, node.reason) == ("closed", "not judged by the bundle's host: died: its driver fell")
    assert events(db, search_id, "bundle.dropped")[-1] == {"bundle_id": bundle.id, "jobs": 1, "then": "fail"}
    assert [attempt for attempt in attempts(db, search_id) if attempt.state == "pending"]


def test_without_baselines_the_search_ends_and_says_why(client: TestClient, db: Database) -> None:
    search_id = created(db)
    bundle = bundled(client, search_id)
    merged(client, unjudged_line(bundle, kind="refused", reason="limits: found 0"))
    assert settled(client, bundle.id, "fail")["failed"] == 1
    search = client.get(f"/v1/searches/{search_id}").json()
    assert search["state"] == "failed"
    assert search["reason"].endswith("not judged by the bundle's host: refused: limits: found 0")
    problem(client.get(f"/v1/bundles/{bundle.id}/unjudged"), 404, "not-found")
    problem(client.post(f"/v1/bundles/{bundle.id}/unjudged", json={"then": "fail"}), 404, "not-found")


def test_a_verdict_counts_though_another_run_had_none(client: TestClient, db: Database) -> None:
    search_id = created(db)
    bundle = bundled(client, search_id)
    merged(client, unjudged_line(bundle), unjudged_line(bundle), unjudged_line(bundle, reason="it fell again"))
    (job,) = client.get(f"/v1/bundles/{bundle.id}/unjudged").json()
    assert job["reason"] == "died: it fell again"
    assert len(events(db, search_id, "bundle.unjudged")) == 1
    assert merged(client, verdict_line(bundle))["merged"] == 1
    assert nodes(db, search_id)[0].state == "judged"
    assert attempts(db, search_id)[0].error is None
    (told,) = merged(client, unjudged_line(bundle))["lines"]
    assert told["outcome"] == "already"
    assert attempts(db, search_id)[0].error is None


def test_a_search_that_ended_is_told_nothing(client: TestClient, db: Database) -> None:
    search_id = created(db)
    bundle = bundled(client, search_id)
    client.post(f"/v1/searches/{search_id}/cancel")
    assert merged(client, unjudged_line(bundle))["late"] == 1
    assert attempts(db, search_id)[0].error is None
    assert settled(client, bundle.id, "fail")["failed"] == 0


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("nonce", "bj_" + "0" * 26),
        ("bundle_id", "bn_" + "0" * 26),
        ("search_id", "sr_" + "0" * 26),
        ("attempt_id", "at_" + "0" * 26),
        ("job_digest", "0" * 64),
        ("signature", "0" * 64),
    ],
)
def test_a_forged_line_on_what_was_not_judged_is_refused(
    name: str, value: str, client: TestClient, db: Database
) -> None:
    search_id = created(db)
    bundle = bundled(client, search_id)
    assert refusal(client, {**unjudged_line(bundle), name: value})[0] == name
    assert attempts(db, search_id)[0].error is None
    assert events(db, search_id, "bundle.unjudged") == []
    assert settled(client, bundle.id, "fail")["failed"] == 0


def test_what_cannot_be_settled_is_a_problem(client: TestClient, db: Database) -> None:
    bundle = bundled(client, created(db))
    route = f"/v1/bundles/{bundle.id}/unjudged"
    assert fields(problem(client.post(route, json={"then": "hope"}), 422, "invalid-input")) == ["then"]
    assert fields(problem(client.post(route, json={}), 422, "invalid-input")) == ["then"]
    problem(client.post(route, content=b"", headers=NDJSON), 422, "invalid-input")
    problem(client.post("/v1/bundles/bn_absent/unjudged", json={"then": "fail"}), 404, "not-found")
    problem(client.get("/v1/bundles/bn_absent/unjudged"), 404, "not-found")
    problem(client.get("/v1/bundles/%00/unjudged"), 404, "not-found")


# Judged elsewhere


class Elsewhere:
    """A host with torch and a copy of the judge, and nothing else of ours."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self.judge = place / "judge"
        copy_judge(self.judge)
        for name in ABSENT:
            (self.judge / f"{name}.py").write_text(f"raise ImportError('{name} is not on this host')\n")

    def start(self, *arguments: str | Path) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-P", "-m", "warpsmith.workers.judge", *map(str, arguments)],
            cwd=self.place,
            env={
                "PATH": os.environ["PATH"],
                "PYTHONPATH": str(self.judge),
                "WARPSMITH_JUDGE_CACHE": str(self.place / "cache"),
            },
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, *arguments: str | Path) -> tuple[int, str]:
        process = self.start(*arguments)
        _, said = process.communicate(timeout=250)
        return process.returncode, said


def lines_in(file: Path) -> list[bytes]:
    return file.read_bytes().splitlines() if file.exists() else []


def candidates(db: Database, search_id: str) -> None:
    """Play the model: two candidates, one right and one that leaves rows out."""
    good = (CANDIDATES / "add_relu_cpp.py").read_text()
    ideate = next(attempt for attempt in attempts(db, search_id) if attempt.kind == "ideate")
    assert steps.claim(db, ideate.id, "model", 30.0, time.time())
    ideas = [steps_support.idea(number) for number in range(2)]
    assert steps.complete_ideate(db, ideate.id, "model", ideas, [], time.time())
    steps.advance(db, search_id, time.time())
    texts = [good, good.replace("int64_t r = 0", "int64_t r = 1")]
    coding = [attempt for attempt in attempts(db, search_id) if attempt.kind == "code"]
    for attempt, text in zip(coding, texts, strict=False):
        assert steps.claim(db, attempt.id, "model", 30.0, time.time())
        assert steps.complete_code(db, attempt.id, "model", text, "cpp", [], time.time())
    for attempt in coding[len(texts) :]:
        assert steps.claim(db, attempt.id, "model", 30.0, time.time())
        assert steps.close_branch(db, attempt.id, "model", "no more was written", [], time.time())
    steps.advance(db, search_id, time.time())


@pytest.mark.nightly
def test_a_search_goes_on_by_bundles_though_the_judge_is_killed(
    client: TestClient, db: Database, tmp_path: Path, examples: Path
) -> None:
    host = Elsewhere(tmp_path)
    search_id = created(db, small_op(examples))

    first = tmp_path / "first"
    write_bundle(first, bundled(client, search_id), judged_by=JUDGE_INSTALLED)
    status, said = host.run(first)
    assert status == 0, said
    report = merged(client, *(line.decode() for line in lines_in(first / "verdicts.jsonl")))
    assert report["merged"] == 1, report
    assert nodes(db, search_id)[0].verdict == "accepted"

    candidates(db, search_id)
    second = tmp_path / "second"
    bundle = bundled(client, search_id)
    assert bundle.count == 2
    write_bundle(second, bundle, judged_by=JUDGE_INSTALLED)
    file = second / "verdicts.jsonl"
    process = host.start(second)
    wait_until(lambda: len(lines_in(file)) == 1 or process.poll() is not None, 200.0)
    process.send_signal(signal.SIGKILL)
    process.communicate(timeout=20)
    (done,) = lines_in(file)
    file.write_bytes(done + b"\n" + done[:200])  # killed amid a line
    status, said = host.run(second)
    assert status == 0, said
    assert "not finished" in said
    assert "judged before: 1 job; to go: 1" in said
    assert lines_in(file)[0] == done
    assert len(lines_in(file)) == 3, "two screenings, and the verification of the one that was accepted"

    report = merged(client, *(line.decode() for line in lines_in(file)))
    assert report["merged"] == 3, report
    found = {node.verdict for node in nodes(db, search_id)[1:] if node.verdict}
    assert found == {"accepted", "rejected"}
    assert merged(client, *(line.decode() for line in lines_in(file)))["already"] == 3
    assert [attempt for attempt in attempts(db, search_id) if attempt.state == "pending"]  # a repair, and what follows


@pytest.mark.nightly
def test_one_judge_takes_several_bundles(client: TestClient, db: Database, tmp_path: Path, examples: Path) -> None:
    host = Elsewhere(tmp_path)
    directories = [tmp_path / "one", tmp_path / "other"]
    for directory in directories:
        write_bundle(directory, bundled(client, created(db, small_op(examples))), judged_by=JUDGE_INSTALLED)
    status, said = host.run(directories[0], tmp_path / "one" / ".." / "one")
    assert (status, "twice" in said) == (2, True), said
    status, said = host.run(*directories, "--job-timeout", "0.01")
    assert (status, "no verdict on 2 jobs" in said) == (1, True), said
    reports = [merged(client, *map(bytes.decode, lines_in(each / "unjudged.jsonl"))) for each in directories]
    assert [report["unjudged"] for report in reports] == [1, 1], "each bundle's lines lie in its own directory"


@pytest.mark.nightly
def test_a_judge_that_has_no_verdict_says_why(client: TestClient, db: Database, tmp_path: Path, examples: Path) -> None:
    host = Elsewhere(tmp_path)
    search_id = created(db, small_op(examples))
    bundle = bundled(client, search_id)
    directory = tmp_path / "bundle"
    write_bundle(directory, bundle, judged_by=JUDGE_INSTALLED)
    file = directory / "unjudged.jsonl"

    status, said = host.run(directory, "--job-timeout", "0.01")
    assert status == 1, said
    assert "no verdict on 1 job (unjudged.jsonl)" in said
    (line,) = lines_in(file)
    (told,) = merged(client, line.decode())["lines"]
    assert (told["outcome"], told["detail"]) == ("unjudged", "timeout: no verdict in time")

    altered = json.loads(bundle.jobs[0])
    altered["job"]["limits"]["compile_s"] = -1.0
    altered["job_digest"] = digest(altered["job"])
    (directory / "jobs.jsonl").write_text(json.dumps(altered) + "\n")
    status, said = host.run(directory)
    assert status == 1, said
    (line,) = lines_in(file)
    assert json.loads(line)["unjudged"]["kind"] == "refused"
    assert json.loads(line)["unjudged"]["reason"].startswith("limits.compile_s: found -1.0, expected seconds")
    assert refusal(client, line.decode())[0] == "job_digest"  # of another job than the one that left

    (directory / "jobs.jsonl").write_text(bundle.jobs[0] + "\n")
    status, said = host.run(directory)
    assert status == 0, said
    assert lines_in(file) == []
    (verdict,) = lines_in(directory / "verdicts.jsonl")
    assert merged(client, verdict.decode())["merged"] == 1
    assert client.get(f"/v1/bundles/{bundle.id}/unjudged").json() == []
