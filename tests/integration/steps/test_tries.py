"""Tries of candidates: asked for, judged by a worker, kept with the node, and paid from seconds of their own."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient
from sqlalchemy import select

from tests.services import migrate
from tests.support import api_support
from tests.support.steps_support import OP, SETTINGS, Driver, create
from tests.support.tried import COMPILED, FAST, RIGHT, Here, announce
from warpsmith.kernels_db.spec.op import Target
from warpsmith.kernels_db.store.db import Database
from warpsmith.kernels_db.store.tables import EventRow, NodeRow, SearchRow, TryRow
from warpsmith.service.cli import run
from warpsmith.service.client.trying import describe_compiled
from warpsmith.service.views.tries import make_try_document
from warpsmith.workers import steps
from warpsmith.workers.judge.protocol.client import JudgeDied, JudgeTimeout, JudgeUnfit
from warpsmith.workers.queue.heartbeat import Worker, beat
from warpsmith.workers.queue.process import WorkerProcess
from warpsmith.workers.queue.try_task import perform_try
from warpsmith.workers.search.budget import TRY_SECONDS
from warpsmith.workers.settings import Settings
from warpsmith.workers.steps import WrongState, reconciling
from warpsmith.workers.steps.trying import (
    MOST_OPEN,
    WAITS_S,
    TryLevel,
    ask_try,
    claim_try,
    finish_try,
    reconcile_tries,
    seconds_of_tries,
)


def asked_node(db: Database, **changes: Any) -> NodeRow:
    """A node whose code is asked for, in a search of its own."""
    driver = Driver(db, create(db, **changes))
    return driver.until("code").node  # type: ignore[return-value]  # its id and seq are read


def ask(db: Database, node_id: str, level: TryLevel = "screen", now: float = 1000.0) -> str:
    with db.writing() as session:
        return ask_try(session, node_id, RIGHT, level, now, "an agent")[0].id


def tried(db: Database, try_id: str) -> TryRow:
    with db.reading() as session:
        return session.get_one(TryRow, try_id)


def search_of(db: Database, node_id: str) -> SearchRow:
    with db.reading() as session:
        return session.get_one(SearchRow, session.get_one(NodeRow, node_id).search_id)


def test_a_try_is_judged_and_kept_and_changes_nothing_of_the_tree(db: Database, tmp_path: Path) -> None:
    node = asked_node(db)
    before = search_of(db, node.id)
    try_id = ask(db, node.id, now=db.now())
    here = Here(db, FAST, tmp_path)
    perform_try(here, try_id)
    perform_try(here, try_id)  # its message came twice
    assert [(job["level"], job["target"]) for job in here.double.jobs] == [("screen", "cpu:x86_64")]
    row, after = tried(db, try_id), search_of(db, node.id)
    assert (row.state, row.verdict, row.score, row.device_s, row.asked_by) == ("done", "accepted", 2.5, 7.5, "an agent")
    assert row.source == RIGHT
    assert row.document["workloads"][0]["samples"] == {}
    assert (after.try_seconds, after.gpu_seconds, after.candidates) == (7.5, before.gpu_seconds, before.candidates)
    with db.reading() as session:
        found = session.get_one(NodeRow, node.id)
        assert (found.state, found.verdict, found.source) == ("coding", None, None)
        told = session.scalars(select(EventRow.payload).where(EventRow.type == "node.tried")).one()
    assert told == {
        "seq": found.seq,
        "try_id": try_id,
        "level": "screen",
        "state": "done",
        "verdict": "accepted",
        "score": 2.5,
    }


def test_spent_seconds_refuse_a_try_and_not_one_that_only_compiles(db: Database, tmp_path: Path) -> None:
    node = asked_node(db, budget={"try_seconds": 10})
    perform_try(Here(db, FAST, tmp_path), ask(db, node.id, now=db.now()))
    last, waiting = ask(db, node.id, now=db.now()), ask(db, node.id, now=db.now())
    perform_try(Here(db, FAST, tmp_path), last)
    assert seconds_of_tries(search_of(db, node.id)) == (15.0, 10)
    with pytest.raises(WrongState, match=r"try_seconds: found 15.0 of 10 device seconds spent.*--tries 20m"):
        ask(db, node.id, now=db.now())
    here = Here(db, COMPILED, tmp_path)
    perform_try(here, waiting)  # it was asked for before they were spent
    assert here.double.jobs == []
    assert (tried(db, waiting).state, "10 device seconds" in str(tried(db, waiting).reason)) == ("failed", True)
    announce(db, "cpu:x86_64", db.now())
    free = ask(db, node.id, "compile", now=db.now())
    perform_try(here, free)
    assert (tried(db, free).state, tried(db, free).gate) == ("done", "compile")


def test_without_a_limit_there_is_a_default(db: Database) -> None:
    assert seconds_of_tries(search_of(db, asked_node(db).id)) == (0.0, TRY_SECONDS)


def test_few_tries_of_a_search_wait_at_once_and_none_of_one_that_ended(db: Database) -> None:
    node = asked_node(db)
    waiting = [ask(db, node.id) for _ in range(MOST_OPEN)]
    with pytest.raises(WrongState, match=f"fewer than {MOST_OPEN}"):
        ask(db, node.id)
    announce(db, "cpu:x86_64", 1000.0)
    ask(db, node.id, "compile")  # each answer asks for one: they count apart
    assert claim_try(db, waiting[1], "me", 30.0, 1001.0) is not None
    steps.cancel(db, search_of(db, node.id).id, 1001.0)
    assert claim_try(db, waiting[0], "me", 30.0, 1002.0) is None
    assert (tried(db, waiting[0]).state, tried(db, waiting[0]).reason) == ("failed", "the search ended first")
    assert tried(db, waiting[1]).state == "running", "its judge may still answer"
    assert finish_try(db, waiting[1], "me", FAST, "right", 1003.0)
    with pytest.raises(WrongState, match="warpsmith judge"):
        ask(db, node.id)
    with pytest.raises(LookupError, match="expected the id of a node"):
        ask(db, "nd_0")


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (JudgeTimeout("no verdict in time"), "the judge gave no verdict: no verdict in time"),
        (RuntimeError("a fault of ours"), "RuntimeError: a fault of ours"),
    ],
)
def test_one_without_a_verdict_says_why(db: Database, tmp_path: Path, answer: Exception, reason: str) -> None:
    try_id = ask(db, asked_node(db).id, now=db.now())
    perform_try(Here(db, answer, tmp_path), try_id)
    row = tried(db, try_id)
    assert (row.state, row.verdict, row.reason) == ("failed", None, reason)


def test_a_candidate_that_hangs_costs_the_seconds_that_it_took(db: Database) -> None:
    node = asked_node(db)
    try_id = ask(db, node.id)
    assert claim_try(db, try_id, "me", 30.0, 1000.0) is not None
    assert not finish_try(db, try_id, "other", None, "not its own", 1600.0, 600.0)
    assert finish_try(db, try_id, "me", None, "no verdict", 1600.0, 600.0)
    assert not finish_try(db, try_id, "me", FAST, "too late", 1601.0)
    assert search_of(db, node.id).try_seconds == 600.0


def test_what_a_crash_lost_comes_back_and_not_for_ever(db: Database, tmp_path: Path) -> None:
    node = asked_node(db)
    try_id = ask(db, node.id)
    assert reconcile_tries(db, 1001.0, SETTINGS) == []
    [again] = reconcile_tries(db, 1020.0, SETTINGS)  # its message was lost
    assert (again.attempt_id, again.queue) == (try_id, "judge.cpu-x86_64")
    now = 1020.0
    for _ in range(SETTINGS.max_tries):
        assert claim_try(db, try_id, "a worker that dies", 30.0, now) is not None
        now += 31.0
        sent = reconcile_tries(db, now, SETTINGS)
    assert sent == []
    assert "3 tries: the judge or its worker died" in str(tried(db, try_id).reason)
    lonely = ask(db, node.id, now=now)
    assert reconcile_tries(db, now + WAITS_S + 1.0, SETTINGS) == []
    assert tried(db, lonely).reason == f"no judge of cpu:x86_64 took it within {WAITS_S:g} s"
    died = ask(db, node.id, now=db.now())
    perform_try(Here(db, JudgeDied("it ended"), tmp_path), died)
    assert tried(db, died).state == "running", "the reconciler returns it, and counts the try"


def test_a_full_disk_counts_against_no_try(db: Database, tmp_path: Path) -> None:
    try_id = ask(db, asked_node(db).id, now=db.now())
    for _ in range(SETTINGS.max_tries + 1):
        perform_try(Here(db, JudgeUnfit("disk", "no room"), tmp_path), try_id)
        row = tried(db, try_id)
        assert (row.state, row.tries) == ("pending", 0)


def test_a_verdict_that_was_made_without_the_device_is_dropped(db: Database, tmp_path: Path) -> None:
    try_id = ask(db, asked_node(db).id, now=db.now())
    here = Here(db, FAST, tmp_path)
    here.ill = "another job lost the GPU"
    perform_try(here, try_id)
    assert (tried(db, try_id).state, tried(db, try_id).verdict) == ("running", None), "the reconciler returns it"


def test_a_search_that_was_deleted_meanwhile_stops_no_round(db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reconciling, "_searches", lambda *_: ["sr_gone"])
    assert reconciling.reconcile(db, 1000.0, SETTINGS) == []


def create_for_gpu(db: Database, language: str) -> str:
    """Create a search for sm_90 in agent mode; returns its root."""
    search_id = steps.create_search(
        db,
        OP,
        Target.parse("cuda:sm_90"),
        language=language,
        now=db.now(),
        policy={"name": "idea_beam"},
        budget={},
        model={"provider": "agent"},
    )
    with db.reading() as session:
        return session.scalars(select(NodeRow.id).where(NodeRow.search_id == search_id)).one()


def test_without_the_device_the_processors_judge_compiles(db: Database, tmp_path: Path) -> None:
    root = create_for_gpu(db, "cuda")
    with pytest.raises(WrongState, match="no judge worker is alive, expected a judge worker that compiles cuda for"):
        ask(db, root, "compile", now=db.now())
    lacking = {"cuda": {"cuda": ["cuda-core is not installed: pip install it"]}}
    beat(db, Worker("judge@here", "judge", "cpu:x86_64", 1, 1.0), {"compiles": lacking}, db.now())
    with pytest.raises(WrongState, match="judge@here: cuda-core is not installed"):
        ask(db, root, "compile", now=db.now())
    announce(db, "cpu:x86_64", db.now())
    with db.writing() as session:
        row, messages = ask_try(session, root, RIGHT, "compile", db.now())
        screen = ask_try(session, root, RIGHT, "screen", db.now())[1]
    assert [message.queue for message in messages] == ["compile.cpu-x86_64"]
    assert [message.queue for message in screen] == ["judge.cuda-sm_90"]
    later = db.now() + 20.0
    announce(db, "cpu:x86_64", later)
    announce(db, "cuda:sm_90", later, "judge-gpu0@far")
    again = reconcile_tries(db, later, SETTINGS)
    assert {(message.attempt_id, message.queue) for message in again if message.attempt_id == row.id} == {
        (row.id, "compile.cuda-sm_90")
    }
    held = COMPILED | {"seconds": {"screen": 2.0, "exclusive": 2.0}}  # the interpreter's check holds the processor
    perform_try(Here(db, held, tmp_path), row.id)  # type: ignore[arg-type] # a verdict with other seconds
    assert (tried(db, row.id).state, tried(db, row.id).device_s) == ("done", 0.0)
    assert search_of(db, root).try_seconds == 0.0


@pytest.fixture
def client(tmp_path: Path) -> Iterator[TestClient]:
    with api_support.client_of(api_support.settings_for(tmp_path)) as found:
        yield found


def test_the_api_takes_a_try_and_tells_what_came_of_it(client: TestClient, tmp_path: Path) -> None:
    db = api_support.database(client)
    node = asked_node(db)
    asked = client.post(f"/v1/nodes/{node.id}/tries", json={"source": RIGHT, "asked_by": "me"})
    assert (asked.status_code, asked.json()["state"]) == (202, "pending")
    path = asked.headers["Location"]
    perform_try(Here(db, FAST, tmp_path), asked.json()["id"])
    found = client.get(path).json()
    assert (found["state"], found["verdict"], found["score"], found["asked_by"]) == ("done", "accepted", 2.5, "me")
    assert (found["spent_s"], found["limit_s"], found["device_s"]) == (7.5, TRY_SECONDS, 7.5)
    assert "large" in found["feedback"]
    assert [one["id"] for one in found["workloads"]] == ["large"]
    [listed] = client.get(f"/v1/nodes/{node.id}/tries").json()["items"]
    [in_node] = client.get(f"/v1/nodes/{node.id}").json()["tries"]
    assert listed == in_node
    assert listed.items() <= found.items()
    search = client.get(f"/v1/searches/{found['search_id']}").json()
    assert search["spend"]["try_seconds"] == 7.5
    story = client.get(f"/v1/searches/{found['search_id']}/story").json()
    assert "1 try before answers, for 1 node: 1 right, 7.5 s on the device." in story["text"].replace("\n", " ")
    refused = client.post(f"/v1/nodes/{node.id}/tries", json={"source": RIGHT, "level": "verify"})
    assert refused.status_code == 422
    assert client.post("/v1/nodes/nd_0/tries", json={"source": RIGHT}).status_code == 404
    assert client.get("/v1/tries/ty_0").status_code == 404


def test_the_command_waits_for_the_verdict_and_the_node_shows_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    app = api_support.application(api_support.settings_for(tmp_path))
    db = app.state.service.db
    node = asked_node(db)
    file, spec = tmp_path / "reply.md", tmp_path / "op.json"
    file.write_text(f"Here it is.\n\n```python\n{RIGHT}```\n")
    spec.write_text(json.dumps(OP.document()))
    stop = threading.Event()

    def work() -> None:
        while not stop.wait(0.02):
            with db.reading() as session:
                waiting = session.scalars(select(TryRow.id).where(TryRow.state == "pending")).all()
            for try_id in waiting:
                perform_try(Here(db, FAST, tmp_path), try_id)

    worker = threading.Thread(target=work)
    worker.start()
    try:
        with api_support.served(app) as url:
            assert run(["try", node.id, str(file), "--url", url, "--by", "me"]) == 0
            said = capsys.readouterr()
            assert "screen accepted 2.50x, 7.5 s on the device" in said.out
            assert "7.5 of 300 s" in said.err
            assert run(["try", str(spec), str(file), "--url", url, "--json"]) == 0
            found = json.loads(capsys.readouterr().out)
            assert found["source"] == RIGHT
            assert run(["node", node.id, "--url", url]) == 0
            shown = capsys.readouterr().out
            assert "try      ty_" in shown
            assert "screen accepted 2.50x" in shown
            assert run(["try", str(tmp_path), str(file), "--url", url]) == 2
            assert "expected an ask (ak_...), a node" in capsys.readouterr().err.replace("\n", " ")
    finally:
        stop.set()
        worker.join()


@pytest.mark.alone
@pytest.mark.nightly
def test_a_real_judge_tries_a_real_candidate(tmp_path: Path) -> None:
    here = WorkerProcess(Settings(home=tmp_path))
    try:
        migrate(here.db)
        search_id = steps.create_search(
            here.db,
            OP,
            Target.parse("cpu"),
            language="cpp",
            now=here.db.now(),
            policy={"name": "idea_beam"},
            budget={},
            model={"provider": "agent"},
        )
        with here.db.reading() as session:
            root = session.scalars(select(NodeRow.id).where(NodeRow.search_id == search_id)).one()
        broken = RIGHT.replace("int64_t i", "int64_tt i")
        with here.db.writing() as session:
            ids = [
                ask_try(session, root, source, level, here.db.now())[0].id
                for source, level in ((RIGHT, "compile"), (broken, "compile"), (RIGHT, "screen"), (RIGHT, "profile"))
            ]
        for try_id in ids:
            perform_try(here, try_id)
        compiled, refused, screened, profiled = (tried(here.db, each) for each in ids)
        assert (compiled.verdict, compiled.gate, compiled.device_s) == ("ambiguous", "compile", 0.0)
        assert (refused.verdict, refused.gate) == ("rejected", "compile")
        assert screened.verdict == "accepted", screened.reason
        assert screened.device_s > 0
        assert profiled.document["profile"]["rows"], profiled.reason
        assert search_of(here.db, root).try_seconds == pytest.approx(sum(tried(here.db, each).device_s for each in ids))
    finally:
        here.close()


PLUS = """import triton
import triton.language as tl


@triton.jit
def plus(x, y, o, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    m = i < n
    tl.store(o + i, tl.load(x + i, m) + tl.load(y + i, m), m)


def run(x, y, out):
    plus[(triton.cdiv(out.numel(), 256),)](x, y, out, out.numel(), B=256)
"""
"""It forgets the relu: Triton's interpreter finds it."""

SPILLS = '''from kernels_db.runtime import cuda

BLOCK = 1024
TUNE = {"BLOCK": [256, 512, 1024]}

kernels = cuda.compile(r"""
extern "C" __global__ void __launch_bounds__(1024, 2)
spills(const float* x, const float* y, float* out, long long n) {
    float a[96], s = 0.f;
    const long long t = blockIdx.x * (long long)blockDim.x + threadIdx.x;
    #pragma unroll
    for (int i = 0; i < 96; i++) a[i] = x[(t + i) % n] * (i + 1);
    __syncthreads();
    #pragma unroll
    for (int i = 95; i >= 0; i--) s = s * a[i] + a[95 - i];
    if (t < n) out[t] = fmaxf(x[t] + y[t] + s, 0.f);
}
""")


def run(x, y, out):
    kernels.spills[(out.numel() + BLOCK - 1) // BLOCK, BLOCK](x, y, out, out.numel())
'''


@pytest.mark.alone
@pytest.mark.nightly
def test_a_processors_judge_says_what_code_for_a_gpu_compiles_to(tmp_path: Path) -> None:
    app = api_support.application(api_support.settings_for(tmp_path))
    here = WorkerProcess(Settings(home=tmp_path))
    try:
        db = here.db = app.state.service.db
        announce(db, "cpu:x86_64", db.now())
        roots = {language: create_for_gpu(db, language) for language in ("cuda", "triton")}
        with db.writing() as session:
            asked = [
                ask_try(session, roots[language], source, "compile", db.now())[0].id
                for language, source in (("cuda", SPILLS), ("cuda", SPILLS.replace("n)", "m)")), ("triton", PLUS))
            ]
        for try_id in asked:
            perform_try(here, try_id)
        with db.reading() as session:
            spilled, refused, wrong = (make_try_document(session, session.get_one(TryRow, try_id)) for try_id in asked)
        said = describe_compiled(spilled)
        assert said is not None, spilled.reason
        assert re.match(r"compiles for sm_90: spills: 32 registers, [1-9]\d* bytes spilled, 0 bytes shared", said), said
        assert "BLOCK=1024; 2 other configurations of TUNE not compiled" in str(spilled.reason)
        assert (refused.verdict, refused.gate, describe_compiled(refused)) == ("rejected", "compile", None)
        assert "undefined" in str(refused.feedback)
        assert (wrong.verdict, wrong.gate, wrong.device_s) == ("rejected", "screen", 0.0)
        assert str(describe_compiled(wrong)).startswith("compiles for sm_90: plus: ")
        assert "wrong value" in str(wrong.feedback)
    finally:
        here.close()
