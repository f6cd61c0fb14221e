"""What a trip with a bundle carries: first ideas beside the baselines, and the verification of its best screening."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from tests.integration.api.test_bundles import (
    CANDIDATES,
    Elsewhere,
    attempts,
    bundled,
    created,
    lines_in,
    merged,
    nodes,
    refusal,
    settled,
    small_op,
    unjudged_line,
    verdict_line,
)
from tests.services import on_both_databases
from tests.support import steps_support
from warpsmith.kernels_db.job.bundle import digest
from warpsmith.kernels_db.spec.op import Target
from warpsmith.kernels_db.store.db import Database
from warpsmith.kernels_db.store.tables import SearchRow, TeamRow
from warpsmith.service.bundles.folder import JUDGE_INSTALLED, write_bundle
from warpsmith.service.documents.bundles import BundleDocument
from warpsmith.workers import steps
from warpsmith.workers.llm.prompt.requests import build
from warpsmith.workers.llm.providers.agent_model import AgentModel
from warpsmith.workers.queue.model_step import request_context
from warpsmith.workers.steps.work import read_earlier_baselines

GOOD = (CANDIDATES / "add_relu_cpp.py").read_text()
SCORES = (2.0, 1.5)
"""What hosts say of a bundle's screenings."""


def screening(client: TestClient, db: Database, count: int = 2) -> tuple[str, BundleDocument]:
    """A search whose first candidates are out in a bundle."""
    search_id = created(db)
    merged(client, verdict_line(bundled(client, search_id)))
    write(db, search_id, [steps_support.source(number) for number in range(count)])
    return search_id, bundled(client, search_id)


def claimed(db: Database, attempt_id: str) -> steps.Work:
    """A step that a model worker has taken."""
    work = steps.claim(db, attempt_id, "model", 30.0, time.time())
    assert work is not None
    return work


def write(db: Database, search_id: str, sources: list[str]) -> list[steps.Work]:
    """Play the model: ideas where they are asked for, then code; what goes beyond `sources` is closed."""
    left, worked = list(sources), []
    for kind in ("ideate", "code"):
        for attempt in attempts(db, search_id):
            if (attempt.kind, attempt.state) != (kind, "pending"):
                continue
            work = claimed(db, attempt.id)
            worked.append(work)
            if kind == "ideate":
                ideas = [steps_support.idea(100 * attempt.ordinal + number) for number in range(work.params["ideas"])]
                assert steps.complete_ideate(db, attempt.id, "model", ideas, [], time.time())
            elif left:
                assert steps.complete_code(db, attempt.id, "model", left.pop(0), "cpp", [], time.time())
            else:
                assert steps.close_branch(db, attempt.id, "model", "no more was written", [], time.time())
        steps.advance(db, search_id, time.time())
    return worked


def verification_line(bundle: BundleDocument, number: int = 0, **changes: Any) -> dict[str, Any]:
    """A line of verdicts.jsonl on a verification of the bundle, by a host that lies.

    `by`: the line on its screening that the host had.
    """
    by = changes.pop("by", None) or screened(bundle, number, SCORES[number])
    job = json.loads(bundle.verifications[number])
    score = changes.pop("score", 2.0)
    alone = bundle.model_copy(update={"jobs": [bundle.verifications[number]]})
    line = verdict_line(alone, language="cpp", score=score, score_ci95=[score * 0.99, score * 1.01], **changes)
    (large, test) = line["verdict"]["workloads"]
    ids = [workload["id"] for workload in job["job"]["workloads"]]
    line["verdict"]["workloads"] = [large, *({**test, "id": each} for each in ids if each != "large")]
    return {**line, "screening_digest": digest(by["verdict"])}


def screened(bundle: BundleDocument, number: int, score: float) -> dict[str, Any]:
    return verdict_line(bundle, number, language="cpp", score=score, score_ci95=[score * 0.99, score * 1.01])


@on_both_databases("db")
def test_first_ideas_are_asked_for_once_the_baselines_have_left(client: TestClient, db: Database) -> None:
    search_id = created(db)
    assert [attempt.kind for attempt in attempts(db, search_id)] == ["judge"]
    first = bundled(client, search_id)
    ideate, *code = write(db, search_id, [steps_support.source(1), steps_support.source(2)])
    assert ideate.baselines is None
    for work in (ideate, code[0]):
        prompt = build(request_context(work)).messages[-1]["content"]
        assert "The baselines (eager, compile, max_autotune) are not measured yet" in prompt
        assert "compare its achieved rates" not in prompt
    second = bundled(client, search_id)
    assert (second.count, len(second.verifications)) == (2, 2), "one trip carries both bundles"
    assert not [attempt for attempt in attempts(db, search_id) if attempt.state == "pending"]
    # The order in which they come back does not matter.
    assert merged(client, screened(second, 0, 2.0), screened(second, 1, 1.5))["merged"] == 2
    assert {attempt.kind for attempt in attempts(db, search_id)} == {"judge", "ideate", "code"}
    early = refusal(client, verification_line(second))
    assert early == ("nonce", f"one whose search {search_id} has its baselines merged before it")
    assert [node.verification for node in nodes(db, search_id)[1:3]] == ["none", "none"]
    assert merged(client, verdict_line(first))["merged"] == 1
    assert [attempt.kind for attempt in attempts(db, search_id) if attempt.state == "pending"] == ["verify"]
    assert merged(client, verification_line(second))["merged"] == 1


@on_both_databases("db")
def test_requests_have_the_last_baselines_of_the_op_while_their_own_travel(client: TestClient, db: Database) -> None:
    line = verdict_line(bundled(client, created(db)))
    line["verdict"]["workloads"][0]["time_us"]["eager"] = 77.7
    merged(client, line)
    elsewhere = created(db, target="cuda:sm_90")
    bundled(client, elsewhere)
    (work, *_) = write(db, elsewhere, [])
    assert (work.baselines, work.earlier) == (None, False), "of another device nothing is known"
    search_id = created(db)
    bundled(client, search_id)
    ideate, code, *_ = write(db, search_id, [steps_support.source(1)])
    for work in (ideate, code):
        assert work.earlier
        prompt = build(request_context(work)).messages[-1]["content"]
        assert "77.7 us" in prompt
        assert "These numbers, and those of the device, are an earlier search's of this op" in prompt
        assert "are not measured yet" not in prompt


def test_the_baselines_of_another_team_s_private_search_are_not_told(client: TestClient, db: Database) -> None:
    theirs = created(db)
    merged(client, verdict_line(bundled(client, theirs)))
    mine = created(db)
    with db.writing() as session:
        search = session.get_one(SearchRow, mine)
        assert read_earlier_baselines(session, search) is not None
        session.add(TeamRow(name="another", visibility="private", created_at=0.0))
        session.get_one(SearchRow, theirs).team = "another"
        session.flush()
        assert read_earlier_baselines(session, search) is None


@on_both_databases("db")
def test_open_asks_get_the_baselines_as_soon_as_these_come(client: TestClient, db: Database) -> None:
    search_id = created(db)
    first = bundled(client, search_id)
    (ideate,) = (attempt for attempt in attempts(db, search_id) if attempt.kind == "ideate")

    def wait() -> str:
        """Play a model worker in agent mode; returns the request of the ask."""
        work = claimed(db, ideate.id)
        assert steps.wait_for_answer(db, ideate.id, "model", build(request_context(work)), time.time())
        (ask,) = client.get("/v1/asks", params={"search_id": search_id}).json()["items"]
        request: str = client.get(f"/v1/asks/{ask['id']}").json()["messages"][-1]["content"]
        return f"{ask['id']}: {request}"

    before = wait()
    assert "are not measured yet" in before
    assert merged(client, verdict_line(first))["merged"] == 1
    (pending,) = (attempt for attempt in attempts(db, search_id) if attempt.kind == "ideate")
    assert pending.state == "pending"
    after = wait()
    assert after.partition(":")[0] == before.partition(":")[0], "whoever writes already may answer"
    assert "are not measured yet" not in after
    assert "To beat: " in after


def test_a_request_that_was_built_while_the_baselines_came_is_asked_again(client: TestClient, db: Database) -> None:
    search_id = created(db)
    first = bundled(client, search_id)
    (ideate,) = (attempt for attempt in attempts(db, search_id) if attempt.kind == "ideate")
    work = claimed(db, ideate.id)
    assert work.baselines is None
    assert merged(client, verdict_line(first))["merged"] == 1
    assert steps.wait_for_answer(db, ideate.id, "model", build(request_context(work)), time.time())
    (pending,) = (attempt for attempt in attempts(db, search_id) if attempt.kind == "ideate")
    assert pending.state == "pending", "nothing else would take it up"
    again = claimed(db, ideate.id)
    assert again.baselines is not None
    assert steps.wait_for_answer(db, ideate.id, "model", build(request_context(again)), time.time())
    (waiting,) = (attempt for attempt in attempts(db, search_id) if attempt.kind == "ideate")
    assert waiting.state == "waiting"
    (ask,) = client.get("/v1/asks", params={"search_id": search_id}).json()["items"]
    assert "are not measured yet" not in client.get(f"/v1/asks/{ask['id']}").json()["messages"][-1]["content"]


def test_an_answer_that_comes_before_the_request_is_renewed_counts(client: TestClient, db: Database) -> None:
    search_id = created(db)
    first = bundled(client, search_id)
    (ideate,) = (attempt for attempt in attempts(db, search_id) if attempt.kind == "ideate")
    work = claimed(db, ideate.id)
    steps.wait_for_answer(db, ideate.id, "model", build(request_context(work)), time.time())
    merged(client, verdict_line(first))
    (ask,) = client.get("/v1/asks", params={"search_id": search_id}).json()["items"]
    assert client.post(f"/v1/asks/{ask['id']}/answer", json={"reply": "ideas", "answered_by": "me"}).status_code == 200
    again = claimed(db, ideate.id)
    request = build(request_context(again))
    assert steps.wait_for_answer(db, ideate.id, "model", request, time.time())
    (after,) = (attempt for attempt in attempts(db, search_id) if attempt.kind == "ideate")
    assert after.state == "pending", "the reconciler sends it, and its request finds the answer"
    assert AgentModel(db).complete(request).text == "ideas"


def test_a_dropped_bundle_opens_nothing_more_before_its_baselines(client: TestClient, db: Database) -> None:
    search_id = created(db)
    bundle = bundled(client, search_id)
    client.delete(f"/v1/bundles/{bundle.id}")
    write(db, search_id, [steps_support.source(1)])
    assert [attempt.kind for attempt in attempts(db, search_id) if attempt.state == "pending"] == ["judge"]
    assert nodes(db, search_id)[1].state == "planned", "its code is asked for with the baselines' times"


@on_both_databases("db")
def test_a_verification_that_came_along_is_merged_once(client: TestClient, db: Database) -> None:
    search_id, bundle = screening(client, db)
    line = verification_line(bundle)
    assert refusal(client, line) == (
        "nonce",
        f"one whose screening {json.loads(bundle.jobs[0])['nonce']} is merged before it",
    )
    report = merged(client, screened(bundle, 0, 2.0), screened(bundle, 1, 1.5), line)
    assert report["merged"] == 3, report
    assert [node.verification for node in nodes(db, search_id) if node.verdict == "accepted"][1:] == ["passed", "none"]
    verify = [attempt for attempt in attempts(db, search_id) if attempt.kind == "verify"]
    assert [(attempt.state, attempt.ordinal) for attempt in verify] == [("succeeded", 0)]
    assert merged(client, line)["already"] == 1
    other = {**line, "verdict": {**line["verdict"], "reason": "better still"}}
    assert refusal(client, other)[0] == "nonce"
    found = client.get("/v1/bundles", params={"search_id": search_id}).json()["items"][0]
    assert (found["jobs"], found["merged"]) == (2, 2), "verifications that were not worth it are out for nobody"


@on_both_databases("db")
def test_a_dropped_or_settled_bundle_counts_what_its_listing_counts(client: TestClient, db: Database) -> None:
    search_id, bundle = screening(client, db)
    report = merged(client, screened(bundle, 0, 2.0), verification_line(bundle), unjudged_line(bundle, 1))
    assert (report["merged"], report["unjudged"]) == (2, 1), report
    assert client.get("/v1/bundles", params={"search_id": search_id}).json()["items"][0]["merged"] == 1
    assert settled(client, bundle.id, "queue")["merged"] == 1
    assert client.delete(f"/v1/bundles/{bundle.id}").json()["merged"] == 1


@on_both_databases("db")
def test_one_that_the_policy_asked_for_meanwhile_is_taken_over(client: TestClient, db: Database) -> None:
    search_id, bundle = screening(client, db)
    merged(client, screened(bundle, 0, 2.0), screened(bundle, 1, 1.5))
    (waiting,) = (attempt for attempt in attempts(db, search_id) if attempt.kind == "verify")
    assert waiting.state == "pending"
    assert merged(client, verification_line(bundle))["merged"] == 1
    assert [one.state for one in attempts(db, search_id) if one.kind == "verify"] == ["succeeded"]


@on_both_databases("db")
def test_one_that_a_worker_does_already_is_late(client: TestClient, db: Database) -> None:
    search_id, bundle = screening(client, db)
    merged(client, screened(bundle, 0, 2.0), screened(bundle, 1, 1.5))
    (waiting,) = (attempt for attempt in attempts(db, search_id) if attempt.kind == "verify")
    assert steps.claim(db, waiting.id, "a worker", 30.0, time.time()) is not None
    assert merged(client, verification_line(bundle))["late"] == 1
    assert [one.owner for one in attempts(db, search_id) if one.kind == "verify"] == ["a worker"]


@on_both_databases("db")
def test_one_of_a_candidate_that_is_rejected_or_banned_is_late(client: TestClient, db: Database) -> None:
    search_id, bundle = screening(client, db)
    rejected = verdict_line(bundle, 0, language="cpp", verdict="rejected", gate="screen", score=None, score_ci95=None)
    (banned,) = (node.id for node in nodes(db, search_id) if node.seq == 2)
    assert client.post(f"/v1/nodes/{banned}/ban").status_code == 200
    report = merged(client, rejected, screened(bundle, 1, 1.5))
    assert (report["merged"], report["late"]) == (1, 1), "what a ban took back is late"
    report = merged(client, verification_line(bundle, 0), verification_line(bundle, 1))
    assert report["late"] == 2, report
    assert not [attempt for attempt in attempts(db, search_id) if attempt.kind == "verify"]


@on_both_databases("db")
def test_a_ban_takes_back_what_travels_and_no_round_waits_for_it(client: TestClient, db: Database) -> None:
    search_id, bundle = screening(client, db)
    first, second = (node.id for node in nodes(db, search_id) if node.seq in (1, 2))

    def counted() -> tuple[int, int, int]:
        (one,) = [one for one in client.get("/v1/bundles").json()["items"] if one["id"] == bundle.id]
        return one["jobs"], one["merged"], one["out"]

    merged(client, screened(bundle, 0, 2.0))
    assert counted() == (2, 1, 1)
    assert client.post(f"/v1/nodes/{second}/ban").status_code == 200
    assert counted() == (2, 1, 0), "the job that was taken back is not to come any more"
    assert [node.state for node in nodes(db, search_id) if node.id == second] == ["coded"]
    waiting = {attempt.node_id for attempt in attempts(db, search_id) if attempt.state == "pending"}
    assert first in waiting, "the round has settled, and its best is verified"
    line = screened(bundle, 1, 9.0)
    told = merged(client, line)["lines"][0]
    assert (told["outcome"], told["detail"]) == ("late", "its step is cancelled")
    assert client.delete(f"/v1/nodes/{second}/ban").status_code == 200
    again = [attempt for attempt in attempts(db, search_id) if attempt.node_id == second]
    assert [(attempt.kind, attempt.state) for attempt in again if attempt.kind == "judge"] == [("judge", "pending")]
    assert merged(client, line)["lines"][0]["detail"] == "its step is pending"
    assert len(bundled(client, search_id).jobs) == 2, "it travels again, with the verification of the first"


def test_a_forged_or_partial_verification_is_refused(client: TestClient, db: Database) -> None:
    search_id, bundle = screening(client, db)
    merged(client, screened(bundle, 0, 2.0), screened(bundle, 1, 1.5))
    line = verification_line(bundle)
    for name, value in (("attempt_id", "at_" + "0" * 26), ("job_digest", "0" * 64), ("signature", "0" * 64)):
        assert refusal(client, {**line, name: value})[0] == name
    partial = {**line, "verdict": {**line["verdict"], "workloads": line["verdict"]["workloads"][:-1]}}
    assert refusal(client, partial)[0] == "verdict.workloads"
    assert refusal(client, {**line, "verdict": {**line["verdict"], "level": "screen"}})[0] == "verdict.level"
    assert [one.state for one in attempts(db, search_id) if one.kind == "verify"] == ["pending"]


TUNED = 'TUNE = {"BLOCK": [64, 128]}\nBLOCK = 64\n\n\ndef run(x, y, out):\n    return BLOCK\n'


@pytest.mark.parametrize("told", [True, False], ids=["another verdict", "none told"])
def test_one_of_what_another_run_s_sweep_chose_is_refused(client: TestClient, db: Database, told: bool) -> None:
    search_id = created(db)
    merged(client, verdict_line(bundled(client, search_id)))
    write(db, search_id, [TUNED])
    bundle = bundled(client, search_id)
    first, second = (
        {
            **line,
            "verdict": {
                **line["verdict"],
                "sweep": {
                    "chosen": {"BLOCK": size},
                    "configurations": [{"values": {"BLOCK": size}, "time_us": {"large": 50.0}, "rounds": 1}],
                    "seconds": 1,
                },
            },
        }
        for line, size in ((screened(bundle, 0, 2.0), 128), (screened(bundle, 0, 2.0), 64))
    )
    merged(client, first)
    line = verification_line(bundle, by=second)
    if not told:
        del line["screening_digest"]
    field, expected = refusal(client, line)
    assert field == "screening_digest"
    assert expected.startswith(f"'{digest(first['verdict'])}', that of the merged verdict on its screening bj_")
    assert nodes(db, search_id)[1].verification == "open", "the policy's own step is left to be judged"
    assert merged(client, verification_line(bundle, by=first))["merged"] == 1


@on_both_databases("db")
def test_one_that_was_not_judged_changes_nothing_and_goes_with_its_bundle(client: TestClient, db: Database) -> None:
    search_id, bundle = screening(client, db)
    line = unjudged_line(bundle.model_copy(update={"jobs": bundle.verifications}))
    told = merged(client, line)["lines"][0]
    assert (told["outcome"], told["detail"]) == ("late", "not verified beside its screening: its driver fell")
    assert client.get(f"/v1/bundles/{bundle.id}/unjudged").json() == []
    merged(client, unjudged_line(bundle, 0))
    assert [job["seq"] for job in client.get(f"/v1/bundles/{bundle.id}/unjudged").json()] == [1]
    assert settled(client, bundle.id, "queue")["returned"] == 1
    assert refusal(client, verification_line(bundle, 0))[0] == "nonce"
    dropped = client.delete(f"/v1/bundles/{bundle.id}").json()
    assert (dropped["returned"], dropped["merged"]) == (1, 0), dropped
    assert sum(attempt.state == "pending" for attempt in attempts(db, search_id)) == 2
    assert refusal(client, verification_line(bundle, 1))[0] == "nonce"


def test_a_bundle_says_what_a_further_candidate_must_beat(client: TestClient, db: Database) -> None:
    search_id, bundle = screening(client, db)
    assert {json.loads(line)["champion"] for line in bundle.verifications} == {None}
    merged(client, screened(bundle, 0, 2.0), screened(bundle, 1, 1.5), verification_line(bundle))
    write(db, search_id, [steps_support.source(7)])
    (further,) = bundled(client, search_id).verifications
    assert json.loads(further)["champion"]["score"] == 2.0


@pytest.mark.nightly
@on_both_databases("db")
def test_two_rounds_take_three_trips(client: TestClient, db: Database, tmp_path: Path, examples: Path) -> None:
    """Baselines and the first round, a repair and the second round: nothing but the judge's copy on the other host."""
    host = Elsewhere(tmp_path)
    policy = {
        "name": "idea_beam",
        "beam": 1,
        "diverse": 0,
        "ideas": 2,
        "rounds": 2,
        "max_rounds": 2,
        "round_share": 1.0,
    }
    search_id = steps.create_search(
        db,
        small_op(examples),
        Target.parse("cpu"),
        language="cpp",
        policy=policy,
        budget={},
        model={"provider": "agent"},
        now=time.time(),
    )
    steps.advance(db, search_id, time.time())
    again = "run(x, bias, y):\n    for _ in range(40):\n        kernels.bias_relu(x, bias, y, x.shape[0], x.shape[1])\n"
    slow = GOOD.replace("run(x, bias, y):\n", again)
    tuned = GOOD.replace("kernels = ", 'TUNE = {"CHUNK": [1, 2]}\nCHUNK = 1\nkernels = ').replace(
        "y, rows, columns)\n", "y, rows, columns // CHUNK * CHUNK + columns % CHUNK)\n"
    )
    wrong = GOOD.replace("int64_t r = 0", "int64_t r = 1")
    wider = [GOOD.replace("simd", f"simd simdlen({lanes})") for lanes in (4, 8)]
    written = [[slow, tuned], [wider[0], wrong], [wider[1]]]
    trips = 0
    first = tmp_path / "baselines"
    write_bundle(first, bundled(client, search_id), judged_by=JUDGE_INSTALLED)
    directories = [first]
    while client.get(f"/v1/searches/{search_id}").json()["state"] == "running":
        assert trips < 3, [(node.seq, node.state, node.reason) for node in nodes(db, search_id)]
        write(db, search_id, written[trips])
        directory = tmp_path / f"trip{trips}"
        write_bundle(directory, bundled(client, search_id), judged_by=JUDGE_INSTALLED)
        directories.append(directory)
        status, said = host.run(*directories)
        assert status == 0, said
        for each in directories:
            report = merged(client, *(line.decode() for line in lines_in(each / "verdicts.jsonl")))
            assert (report["refused"], report["late"], report["unjudged"]) == (0, 0, 0), report
        directories, trips = [], trips + 1
    search = client.get(f"/v1/searches/{search_id}").json()
    assert search["state"] == "finished", search
    assert search["reason"].startswith("2 rounds were played"), search
    verifications = [attempt for attempt in attempts(db, search_id) if attempt.kind == "verify"]
    assert verifications, "the hosts verified their best"
    assert {attempt.state for attempt in verifications} == {"succeeded"}, "and no step for it was left"
    assert [node for node in nodes(db, search_id) if (node.verdict, node.verification) == ("accepted", "passed")]
