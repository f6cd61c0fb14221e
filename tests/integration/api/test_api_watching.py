"""What the dashboard reads: lists, the tree in rows, progress, attempts, reports, the house, specs before they are
stored."""

from __future__ import annotations

import math
import random
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient
from sqlalchemy import insert, select, update
from sqlalchemy.orm import Session

from tests.services import migrate, on_both_databases
from tests.support import steps_support
from tests.support.api_support import ADD_RELU, HOSTILE, SEARCH, client_of, database, fields, problem, settings_for
from tests.support.api_support import seed as seeded
from tests.support.grown_search import grow, make_sweep
from tests.support.steps_support import Driver, create, small_policy
from warpsmith.kernels_db.spec.op import Target, load_op
from warpsmith.kernels_db.spec.resolve import build_job, resolve_workload
from warpsmith.kernels_db.store.db import Database
from warpsmith.kernels_db.store.tables import KernelRow, ModelCallRow, NodeRow, OpRow, SearchRow, VerdictRow, WorkerRow
from warpsmith.service.api import recent
from warpsmith.service.api.routes import watching
from warpsmith.service.views import mattered
from warpsmith.service.views.mattered import MatteredDocument, make_mattered
from warpsmith.service.views.watch import OVERLAP_S
from warpsmith.workers import steps
from warpsmith.workers.judge.protocol.client import JudgeClient

YAML = {"Content-Type": "application/yaml"}
CANDIDATE = """from kernels_db.runtime import cpp

kernels = cpp.compile(r\"\"\"
extern "C" void add_relu(const float* x, const float* y, float* out, int64_t n) {
    for (int64_t i = 0; i < n; i++) out[i] = x[i] + y[i] < 0 ? 0 : x[i] + y[i];
}
\"\"\")

def run(x, y, out):
    kernels.add_relu(x, y, out, out.numel())
"""


def get(client: TestClient, path: str, **params: Any) -> Any:
    """The document under `path`."""
    response = client.get(path, params=params or None)  # an empty one would take the path's own away
    assert response.status_code == 200, response.text
    return response.json()


@pytest.fixture(scope="module")
def _played(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A database with a search that was played to its end, and the search."""
    path = tmp_path_factory.mktemp("played") / "warpsmith.db"
    db = Database(f"sqlite:///{path}")
    migrate(db)
    driver = Driver(db, create(db, budget={"candidates": 50}), small_policy(codes=2, ideas=3, rounds=1))
    assert driver.run().state == "finished"
    with db.engine.connect() as connection:
        connection.exec_driver_sql("PRAGMA wal_checkpoint(TRUNCATE)")
    db.dispose()
    return path, driver.search_id


@pytest.fixture
def played(_played: tuple[Path, str], tmp_path: Path) -> Iterator[tuple[TestClient, Driver]]:
    """A client of the API on a copy of that database, and the search."""
    path, search_id = _played
    shutil.copy(path, tmp_path / "warpsmith.db")
    with client_of(settings_for(tmp_path)) as client:
        yield client, Driver(database(client), search_id)


def test_the_lists_say_what_was_gained(played: tuple[TestClient, Driver]) -> None:
    client, driver = played
    db = driver.db
    waiting = create(db, now=5000.0)
    [second, first] = get(client, "/v1/searches")["items"]
    assert (second["id"], second["best"], second["best_score"]) == (waiting, None, None)
    best = max((node for node in driver.nodes() if node.verification == "passed"), key=lambda node: node.score or 0)
    assert best.score is not None
    assert best.idea is not None
    assert first["best"]["node_id"] == best.id
    assert first["best"]["verified"]
    assert first["best"]["speedup"] == {
        name: pytest.approx(best.score) for name in ("eager", "compile", "max_autotune")
    }
    for low, high in first["best"]["speedup_ci95"].values():
        assert [low, high] == pytest.approx([best.score * 0.98, best.score * 1.02])
    assert (first["policy_name"], first["provider"]) == ("idea_beam", "agent")
    assert get(client, f"/v1/searches/{driver.search_id}")["best"]["speedup_ci95"] == first["best"]["speedup_ci95"]

    [kernel] = get(client, "/v1/kernels", text="relu", language="cpp")["items"]
    assert kernel["title"] == best.idea["title"]
    assert kernel["speedup_ci95"] == first["best"]["speedup_ci95"]
    assert {item["id"]: item["axes"] for item in kernel["workloads"]} == {
        "large": {"n": 1048576},
        "ragged": {"n": 1021},
    }
    assert kernel["verification"]["current"] is True
    whole = get(client, f"/v1/kernels/{kernel['id']}")
    assert whole["formats"][0]["name"] == "package"
    problem(client.get(f"/v1/kernels/{kernel['id']}/export", params={"format": "tarball"}), 422, "invalid-input")
    assert (
        get(client, "/v1/kernels", language="triton")["items"] == get(client, "/v1/kernels", text="gelu")["items"] == []
    )


@on_both_databases("db")
def test_everything_is_answered_on_both_databases(client: TestClient, db: Database) -> None:
    seeded(db)
    search, node = "/v1/searches/sr_seed", "/v1/nodes/nd_good"
    assert get(client, "/v1/searches", sort="score", text="RELU")["items"][0]["best"]["speedup"]["compile"] == 2.0
    assert get(client, f"{search}/tree/rows")["rows"][1]["title"] == "Eight lanes at once"
    assert get(client, f"{search}/progress")["gates"] == [
        {"gate": "screen", "verdict": "rejected", "count": 1},
        {"gate": "time", "verdict": "accepted", "count": 1},
    ]
    assert [item["id"] for item in get(client, f"{search}/attempts")["items"]] == ["at_0", "at_1", "at_2", "at_3"]
    assert get(client, f"{node}/report")["workloads"][0]["roofline"]["bytes"] == 786432
    assert [child["id"] for child in get(client, node)["children"]] == ["nd_bad"]
    assert get(client, "/v1/kernels", sort="limit", order="asc")["items"][0]["workloads"][0]["axes"] == {"n": 65536}
    exported = client.get("/v1/kernels/kn_0/export", params={"format": "package"})
    assert exported.headers["content-type"] == "application/zip"
    assert get(client, "/v1/asks/ak_0")["node"]["id"] == "nd_bad"
    assert get(client, "/v1/options")["policies"]


@on_both_databases("db")
def test_lists_filter_and_sort_and_page(client: TestClient, db: Database) -> None:
    ids = [create(db, now=1000.0 + number) for number in range(4)]
    with db.writing() as session:
        for candidates, search_id in zip((5, 9, 1, 5), ids, strict=True):
            session.get_one(SearchRow, search_id).candidates = candidates
    steps.cancel(db, ids[1], 2000.0)
    first = get(client, "/v1/searches", sort="candidates", order="asc", limit=3)
    second = get(client, "/v1/searches", sort="candidates", order="asc", limit=3, after=first["next"])
    assert [item["id"] for item in first["items"] + second["items"]] == [ids[2], ids[0], ids[3], ids[1]]
    assert second["next"] is None
    assert [item["id"] for item in get(client, "/v1/searches?state=cancelled&state=failed")["items"]] == [ids[1]]
    assert [item["id"] for item in get(client, "/v1/searches", text=ids[3])["items"]] == [ids[3]]
    for wrong in ({"sort": "age"}, {"order": "up"}, {"state": "asleep"}, {"text": ""}, {"after": "x"}):
        [field] = fields(problem(client.get("/v1/searches", params=wrong), 422, "invalid-input"))
        assert field.startswith(f"query.{next(iter(wrong))}")


def test_a_kernel_whose_device_is_another_now_is_not_current(played: tuple[TestClient, Driver]) -> None:
    client, driver = played
    db = driver.db
    with db.writing() as session:
        newest = session.scalars(select(VerdictRow).order_by(VerdictRow.id.desc()).limit(1)).one()
        newest.document = {**newest.document, "fingerprint": "of another driver"}
    assert get(client, "/v1/kernels")["items"][0]["verification"]["current"] is False
    with db.writing() as session:
        kernel = session.scalars(select(KernelRow)).one()
        kernel.evidence = {name: part for name, part in kernel.evidence.items() if name != "fingerprint"}
    assert get(client, "/v1/kernels")["items"][0]["verification"]["current"] is None


def test_the_trees_rows_are_the_trees_nodes(played: tuple[TestClient, Driver]) -> None:
    client, driver = played
    path = f"/v1/searches/{driver.search_id}/tree/rows"
    rows, after = [], -1
    while after is not None:
        page = get(client, path, after_seq=after, limit=4)
        rows += page["rows"]
        after = page["next_after_seq"]
        assert page["nodes"] == len(driver.nodes())
    whole = get(client, f"/v1/searches/{driver.search_id}/tree", limit=1000)["nodes"]
    assert len(rows) == len(whole) > 5
    for row, node in zip(rows, whole, strict=True):
        assert None not in row.values()
        assert row == {name: value for name, value in node.items() if name in row}
        assert {name for name in ("verdict", "score", "title", "mark") if node[name] is not None} <= row.keys()
    assert page["best_path"] == [whole[0]["id"], page["best_node_id"]]


def test_rows_that_changed_since_are_asked_for_alone(local: TestClient) -> None:
    client, db = local, database(local)
    driver = Driver(db, create(db, now=time.time() - 1000), now=time.time() - 1000)
    driver.until("judge")
    path = f"/v1/searches/{driver.search_id}/tree/rows"
    first = get(client, path)
    assert first["as_of"] == pytest.approx(time.time() - OVERLAP_S, abs=10)
    assert get(client, path, updated_since=first["as_of"])["rows"] == []
    node = driver.nodes()[-1]
    client.post(f"/v1/nodes/{node.id}/pin")
    [row] = get(client, path, updated_since=first["as_of"])["rows"]
    assert (row["id"], row["mark"]) == (node.id, "pinned")


def test_progress_is_what_the_verdicts_were(played: tuple[TestClient, Driver]) -> None:
    client, driver = played
    db = driver.db
    found = get(client, f"/v1/searches/{driver.search_id}/progress")
    with db.reading() as session:
        query = select(VerdictRow).where(VerdictRow.level != "baseline").order_by(VerdictRow.id)
        verdicts = session.scalars(query).all()
    assert [(point["node_id"], point["level"], point["verdict"], point["score"]) for point in found["judged"]] == [
        (row.node_id, row.level, row.verdict, row.document["score"]) for row in verdicts
    ]
    assert [point["candidates"] for point in found["judged"]] == sorted(
        point["candidates"] for point in found["judged"]
    )
    failed = {row.node_id for row in verdicts if row.level == "verify" and row.verdict != "accepted"}
    scores, bests = {}, []
    for row in verdicts:
        if row.verdict == "accepted" and row.node_id not in failed:
            scores[row.node_id] = (row.document["score"], row.level)
            best = max(scores, key=scores.__getitem__)
            bests.append((best, *scores[best]))
    changes = [now for before, now in zip([None, *bests], bests, strict=False) if now != before]
    assert [(point["node_id"], point["score"], point["level"]) for point in found["best"]] == changes
    header = get(client, f"/v1/searches/{driver.search_id}")["best"]
    assert [header["node_id"], header["score"]] == [found["best"][-1][name] for name in ("node_id", "score")]
    assert header["verified"] == (found["best"][-1]["level"] == "verify")
    assert all(point["cost_usd"] > 0 and point["elapsed_s"] > 0 for point in found["best"])
    candidates = [node for node in driver.nodes() if node.seq and node.verdict]
    assert sum(entry["count"] for entry in found["gates"]) == len(candidates)
    [cap] = [cap for cap in found["caps"] if cap["name"] == "candidates"]
    assert cap == {"name": "candidates", "used": driver.search().candidates, "limit": 50, "fraction": cap["used"] / 50}
    assert found["waiting_for"] == []


def test_a_cost_that_nobody_knows_is_null_everywhere(local: TestClient) -> None:
    client, db = local, database(local)
    driver = Driver(db, create(db, model={"provider": "openai", "model": "local"}))
    work = driver.until("code")
    call = steps_support.call(7)
    unpriced = steps.ModelCall(**{**vars(call), "provider": "openai", "cost_usd": None})
    steps.complete_code(db, work.attempt_id, "me", steps_support.source(7), "cpp", [unpriced], driver.now)
    assert driver.search().unpriced_calls == 1
    driver.run()
    assert get(client, f"/v1/searches/{driver.search_id}")["spend"]["cost_usd"] is None
    assert get(client, "/v1/searches", sort="cost")["items"][0]["spend"]["cost_usd"] is None
    assert {point["cost_usd"] for point in get(client, f"/v1/searches/{driver.search_id}/progress")["judged"]} == {None}
    assert get(client, f"/v1/nodes/{work.node.id}")["cost"]["cost_usd"] is None


def test_attempts_page_in_the_order_in_which_they_were_opened(played: tuple[TestClient, Driver]) -> None:
    client, driver = played
    found, after = [], None
    while True:
        page = get(client, f"/v1/searches/{driver.search_id}/attempts", limit=5, **({"after": after} if after else {}))
        found += page["items"]
        after = page["next"]
        if after is None:
            break
    assert [item["id"] for item in found] == [attempt.id for attempt in driver.attempts()]
    assert {item["owner"] for item in found} >= {"worker-1", "worker-2"}
    assert all(item["created_at"] <= item["started_at"] <= item["finished_at"] for item in found)
    problem(client.get(f"/v1/searches/{driver.search_id}/attempts?after=%25"), 422, "invalid-input")


def test_a_node_names_its_neighbours_and_its_cost(played: tuple[TestClient, Driver]) -> None:
    client, driver = played
    db = driver.db
    root, *nodes = driver.nodes()
    best = driver.search().best_node_id
    document = get(client, f"/v1/nodes/{root.id}")
    assert document["parent"] is None
    assert [child["id"] for child in document["children"]] == [node.id for node in nodes]
    assert document["champion"]["id"] == best
    champion = get(client, f"/v1/nodes/{best}")
    assert champion["champion"]["id"] == best
    assert (champion["parent"]["id"], champion["children"]) == (root.id, [])
    assert champion["kernel_id"] == get(client, "/v1/kernels")["items"][0]["id"]
    with db.reading() as session:
        calls = session.scalars(select(ModelCallRow).where(ModelCallRow.node_id == best)).all()
    assert champion["cost"]["model_calls"] == len(calls)
    assert champion["cost"]["cost_usd"] == pytest.approx(0.25 * len(calls))
    source = get(client, f"/v1/nodes/{best}/source")
    assert source["source"] == champion["source"]
    assert get(client, f"/v1/nodes/{root.id}/source")["source"] is None


@pytest.mark.nightly
def test_a_report_puts_the_node_beside_its_parent_the_champion_and_the_baselines(local: TestClient) -> None:
    """By the real judge: the limit that it tells is where the drawn peaks say."""
    db, target = database(local), Target("cpu", "x86_64")
    seeded(db)
    op = load_op(ADD_RELU.replace("workloads:", "limits: {flops: 2 * n}\nobjective: {baselines: [eager]}\nworkloads:"))
    with JudgeClient(cache=Path(str(db.url.database)).parent / "judge") as judge:
        job = build_job(op, target, candidate={"language": "cpp", "source": CANDIDATE}, level="screen")
        verdict = judge.judge(job, timeout_s=240)
    assert verdict["verdict"] == "accepted", verdict["reason"]
    with db.writing() as session:
        session.execute(update(VerdictRow).where(VerdictRow.node_id == "nd_good").values(document=dict(verdict)))
        session.add(
            VerdictRow(
                id="vd_2",
                search_id="sr_seed",
                node_id="nd_bad",
                attempt_id="at_2",
                level="screen",
                verdict="accepted",
                gate="time",
                document=dict(verdict),
                created_at=time.time(),
            )
        )
        session.execute(update(OpRow).values(spec=op.document()))
    found = get(local, "/v1/nodes/nd_bad/report")
    assert (found["verdict_id"], found["level"], found["device"]["name"]) == (
        "vd_2",
        "screen",
        verdict["device"]["name"],
    )
    assert found["compile"]["log"] is not None
    [entry] = [item for item in found["workloads"] if item["role"] == "bench"]
    roof = entry["roofline"]
    resolved = resolve_workload(op, op.workload(target, "large"))
    assert (roof["bytes"], roof["operations"], roof["arithmetic"]) == (resolved["min_bytes"], 131072, "float32")
    by_bytes, by_operations = roof["bytes"] / roof["bandwidth_gbs"] / 1e3, roof["operations"] / roof["gflops"] / 1e3
    assert roof["limit_us"] == pytest.approx(max(by_bytes, by_operations))
    assert {(point["kind"], point["contender"], point["seq"]) for point in roof["points"]} == {
        ("node", "candidate", 2),
        ("champion", "candidate", 1),
        ("baseline", "eager", None),
    }
    for timing in entry["timings"]:
        assert sorted(timing["samples"])[len(timing["samples"]) // 2] == pytest.approx(timing["time_us"], rel=0.5)
        assert (timing["ci95"] is None) == (len(timing["samples"]) < 6)
    for point in roof["points"]:
        assert point["gbs"] == pytest.approx(roof["bytes"] / point["time_us"] / 1e3)
        assert math.isclose(point["limit_fraction"], roof["limit_us"] / point["time_us"])
    devices = get(local, "/v1/system")["devices"]
    assert [device["name"] for device in devices] == [verdict["device"]["name"]]
    assert roof["bandwidth_gbs"] in [entry["gbs"] for entry in devices[0]["bandwidth"]]


def test_a_report_has_the_sweep_over_tunables(local: TestClient) -> None:
    seeded(database(local))
    fastest = {"values": {"ROWS": 4}, "time_us": {"large": 10.0}, "rounds": 2}
    slower = {"values": {"ROWS": 1}, "time_us": {"large": 15.0}, "rounds": 1, "unscaled": ["large"]}
    wrong = {"values": {"ROWS": 16}, "time_us": {}, "rounds": 0, "failure": HOSTILE}
    sweep = {"chosen": {"ROWS": 4}, "configurations": [fastest, slower, wrong], "seconds": 2.5, "left_out": 1}
    with database(local).writing() as session:
        row = session.get_one(VerdictRow, "vd_1")
        row.document = {**row.document, "sweep": sweep}
    found = get(local, "/v1/nodes/nd_good/report", verdict="vd_1")["sweep"]
    assert found["summary"] == "ROWS=4 best of 2 timed, 1 failed, 1 not timed; others +50 % time (ROWS=1)"
    shown = {"unscaled": [], "failure": None}
    assert found["configurations"] == [{**shown, **fastest}, {**shown, **slower}, {**shown, **wrong}]
    assert (found["chosen"], found["seconds"], found["left_out"], found["limit_s"]) == ({"ROWS": 4}, 2.5, 1, None)
    assert (found["importance"]["configurations"], found["importance"]["tunables"]) == (2, [])
    assert "one tunable alone" in found["importance"]["unclear"]


@on_both_databases("db")
def test_what_mattered_is_told_of_all_sweeps_of_a_search(client: TestClient, db: Database) -> None:
    search_id = grow(db)
    with db.reading() as session:
        best = session.get_one(SearchRow, search_id).best_node_id
        swept = session.scalars(select(VerdictRow).where(VerdictRow.search_id == search_id)).all()
    found = get(client, f"/v1/searches/{search_id}/mattered")
    first, *others = found["sweeps"]
    assert first["node_id"] == best
    assert [one["score"] for one in others] == sorted((one["score"] for one in others), reverse=True)
    assert len(found["sweeps"]) == len(swept) == found["tunables"]["sweeps"]
    assert (found["not_sent"], found["not_counted"], found["tunables"]["unused"]) == (0, 0, 0)
    assert found["as_of"] == get(client, f"/v1/searches/{search_id}")["updated_at"]
    assert found["tunables"]["configurations"] == sum(len(one["configurations"]) for one in found["sweeps"])
    assert first["configurations"][0] == {"values": first["chosen"], "ratio": 1.0}
    assert (len(first["configurations"]), first["out"]) == (22, 2)
    by_name = {one["name"]: one for one in found["tunables"]["tunables"]}
    assert [*by_name][:2] == ["ROWS", "BLOCK"]
    assert by_name["WARPS"]["sweeps"] == by_name["ROWS"]["sweeps"] + by_name["BLOCK"]["sweeps"]
    assert by_name["WARPS"]["share"] < 0.1
    assert (found["techniques"]["techniques"], found["techniques"]["unclear"]) == (4, None)
    assert found["techniques"]["share"] > found["techniques"]["by_chance"]


@on_both_databases("db")
def test_of_a_node_the_sweep_of_its_present_code_counts(
    client: TestClient, db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recent, "KEPT_S", 0.0)
    seeded(db)

    def find() -> Any:
        with db.writing() as session:
            session.get_one(SearchRow, "sr_seed").updated_at += 1
        return get(client, "/v1/searches/sr_seed/mattered")

    found = find()
    assert (found["sweeps"], found["tunables"]["unclear"]) == ([], "no candidate was swept")
    with db.writing() as session:
        row = session.get_one(VerdictRow, "vd_1")
        columns = [column.key for column in VerdictRow.__table__.columns]
        node = session.get_one(NodeRow, row.node_id)
        node.source = row.source = "first"
        row.level, row.document = "screen", {**row.document, "sweep": make_sweep(random.Random(1))}
        sweep = make_sweep(random.Random(2), {"ROWS": (1, 2, 4, 8), "WARPS": (1, 2)})
        again = {"id": "vd_1_later", "attempt_id": "at_3", "document": {**row.document, "sweep": sweep}}
        session.add(VerdictRow(**{name: getattr(row, name) for name in columns} | again))
    [only] = find()["sweeps"]
    assert set(only["chosen"]) == {"ROWS", "WARPS"}, "the newest of two of one code"
    with db.writing() as session:
        session.get_one(NodeRow, node.id).source = "repaired"
    assert find()["sweeps"] == [], "the repair has no tunables, or was not screened yet"
    with db.writing() as session:
        session.get_one(NodeRow, node.id).source = "first"
        later = session.get_one(VerdictRow, "vd_1_later")
        later.document = {name: part for name, part in later.document.items() if name != "sweep"}
    assert find()["sweeps"] == [], "the newest screening had no sweep"
    problem(client.get("/v1/searches/sr_none/mattered"), 404, "not-found")


@on_both_databases("db")
def test_an_answer_of_what_mattered_is_bounded_and_says_by_how_much(
    client: TestClient, db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    search_id = grow(db)

    def find(**bounds: int) -> Any:
        for name, value in bounds.items():
            monkeypatch.setattr(mattered, name, value)
        with db.reading() as session:
            return make_mattered(session, session.get_one(SearchRow, search_id))

    whole = find(NODES_AT_ONCE=7)
    count = len(whole.sweeps)
    assert count == whole.tunables.sweeps > 10
    first = len(whole.sweeps[0].configurations)
    found = find(MOST_SENT=first)
    assert ([one.seq for one in found.sweeps], found.not_sent) == ([whole.sweeps[0].seq], count - 1)
    assert (found.tunables, found.not_counted) == (whole.tunables, 0)
    found = find(MOST_COUNTED=4)
    assert (len(found.sweeps), found.not_sent, found.tunables.sweeps, found.not_counted) == (1, 3, 4, count - 4)
    found = find(MOST_CANDIDATES=1)
    assert (len(found.sweeps), found.not_sent, found.not_counted) == (1, 0, 0)


def test_what_mattered_is_made_once_for_all_who_ask(local: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    seeded(database(local))
    made: list[str] = []

    def make(session: Session, row: SearchRow) -> MatteredDocument:
        made.append(row.state)
        return make_mattered(session, row)

    def change(**columns: Any) -> None:
        with database(local).writing() as session:
            session.execute(update(SearchRow).where(SearchRow.id == "sr_seed").values(**columns))

    monkeypatch.setattr(watching, "make_mattered", make)
    path = "/v1/searches/sr_seed/mattered"
    first = get(local, path)
    change(updated_at=first["as_of"] + 1)
    assert get(local, path) == first
    change(state="cancelled")
    assert get(local, path)["as_of"] == first["as_of"] + 1, "the last answer is of the search as it ended"
    monkeypatch.setattr(recent, "KEPT_S", 0.0)
    get(local, path)
    assert len(made) == 2, "nothing has changed"
    change(updated_at=first["as_of"] + 2)
    assert get(local, path)["as_of"] == first["as_of"] + 2
    assert len(made) == 3


def test_a_report_tells_a_failure_and_knows_what_was_never_judged(local: TestClient) -> None:
    seeded(database(local))
    failure = {"kind": "wrong_value", "message": HOSTILE, "tensor": "out", "index": [3], "limit": "nan", "elements": 9}
    document = {"reason": HOSTILE, "workloads": [], "failure": failure, "device": {}, "seconds": {"compile": 0.5}}
    with database(local).writing() as session:
        row = session.get_one(VerdictRow, "vd_1")
        row.document, row.verdict, row.gate = document, "rejected", "screen"
    found = get(local, "/v1/nodes/nd_good/report", verdict="vd_1")
    assert (found["failure"]["message"], found["failure"]["index"], found["compile"]) == (HOSTILE, [3], None)
    assert (found["failure"]["recipe"], found["attack"]) == (None, None)
    recipe = {"workload": "large", "seed": 7, "changes": [{"input": "x", "move": "scale", "exponent": -20}]}
    entry = {"workload": "large", "tries": 12, "ratio": "inf", "recipe": recipe}
    attack = {"tries": 12, "seconds": 2.5, "workloads": [entry], "counterexample": recipe}
    searched = {**failure, "kind": "counterexample", "eager": 1.0, "description": HOSTILE, "recipe": recipe}
    with database(local).writing() as session:
        session.get_one(VerdictRow, "vd_1").document = {**document, "failure": searched, "attack": attack}
    found = get(local, "/v1/nodes/nd_good/report", verdict="vd_1")
    assert [found["failure"][name] for name in ("eager", "description", "recipe")] == [1.0, HOSTILE, recipe]
    assert found["attack"] == {"tries": 12, "seconds": 2.5, "ratio": "inf", "found": True, "skipped": None}
    assert found["sweep"] is None
    problem(local.get("/v1/nodes/nd_bad/report"), 404, "not-found")
    problem(local.get("/v1/nodes/nd_good/report?verdict=vd_0"), 404, "not-found")


def test_asks_say_what_they_are_about_and_what_became_of_them(local: TestClient) -> None:
    client, db = local, database(local)
    driver = Driver(db, create(db))
    work = driver.until("code")
    asked = steps_support.request(1, attempt_id=work.attempt_id)
    assert steps.wait_for_answer(db, work.attempt_id, "me", asked, driver.now)
    node = next(node for node in driver.nodes() if node.id == work.node.id)
    assert node.idea is not None
    [ask] = get(client, "/v1/asks", state="open")["items"]
    assert (ask["op_name"], ask["target"], ask["seq"], ask["title"]) == (
        "add_relu",
        "cpu:x86_64",
        node.seq,
        node.idea["title"],
    )
    assert client.post(f"/v1/asks/{ask['id']}/answer", json={"reply": "text"}).status_code == 200
    document = get(client, f"/v1/asks/{ask['id']}")
    assert document["step"]["kind"] == "code"
    assert (document["node"]["id"], document["node"]["state"]) == (node.id, "coding")


def test_the_house_shows_its_queues_and_what_fails(client: TestClient, db: Database) -> None:
    driver = Driver(db, create(db, now=time.time() - 60), now=time.time() - 60)
    driver.advance()
    now = time.time()
    with db.writing() as session:
        session.add(WorkerRow(name="a", role="judge", target="cpu:x86_64", facts={}, started_at=now, seen_at=now))
        session.add(WorkerRow(name="b", role="judge", target="cuda:sm_90", facts={}, started_at=now, seen_at=now - 999))
    found = get(client, "/v1/system")
    assert [(queue["name"], queue["waiting"], queue["live_workers"]) for queue in found["queues"]] == [
        ("model", 0, 0),
        ("judge.cpu-x86_64", 1, 1),
    ]
    assert found["queues"][1]["oldest_s"] == pytest.approx(60, abs=30)
    assert {check["name"]: check["ok"] for check in found["checks"]} == {"database": True, "broker": False}
    assert (found["workers_alive"], found["searches_by_state"], found["devices"]) == (1, {"running": 1}, [])
    driver.claim(driver.attempts()[0].id)
    assert [(queue["waiting"], queue["running"]) for queue in get(client, "/v1/system")["queues"]] == [(0, 0), (0, 1)]


def test_bundles_are_listed_until_they_are_dropped(client: TestClient, db: Database) -> None:
    drivers = [Driver(db, create(db, now=1000.0 + number)) for number in range(3)]
    made = []
    for driver in drivers:
        driver.advance()
        made.append(client.post(f"/v1/searches/{driver.search_id}/bundles").json())
    first = get(client, "/v1/bundles", limit=2)
    second = get(client, "/v1/bundles", limit=2, after=first["next"])
    listed = first["items"] + second["items"]
    assert [item["id"] for item in listed] == [bundle["id"] for bundle in reversed(made)]
    assert {(item["op_name"], item["target"], item["jobs"], item["merged"], item["out"]) for item in listed} == {
        ("add_relu", "cpu:x86_64", 1, 0, 1)
    }
    assert client.delete(f"/v1/bundles/{made[0]['id']}").status_code == 200
    [left] = get(client, "/v1/bundles", search_id=drivers[1].search_id)["items"]
    assert left["id"] == made[1]["id"]
    assert get(client, "/v1/bundles", search_id=drivers[0].search_id)["items"] == []


def test_a_spec_is_looked_at_without_being_stored(local: TestClient) -> None:
    response = local.post("/v1/ops/validate", content=ADD_RELU, headers=YAML)
    found = response.json()
    assert (response.status_code, found["valid"], found["errors"]) == (200, True, [])
    assert (found["name"], found["op_id"], found["devices"]) == ("add_relu", None, ["cpu", "cuda"])
    assert {item["id"]: item["min_bytes"] for item in found["workloads"]} == {"large": 786432, "ragged": 12252}
    assert get(local, "/v1/ops")["items"] == []
    submission = {**SEARCH, "op": found["spec"]}
    assert local.post("/v1/searches/estimate", json=submission).status_code == 200
    stored = local.post("/v1/ops", json=found["spec"]).json()
    again = local.post("/v1/ops/validate", json=found["spec"]).json()
    assert (again["op_id"], again["digest"]) == (stored["id"], found["digest"])


@pytest.mark.parametrize(
    ("text", "field", "found"),
    [
        ("name: [", "document", "line 1"),
        (b"\xff", "document", "byte 0xff"),
        ("- a list", "document", "a list"),
        (ADD_RELU.replace("float32", "float31", 1), "inputs[0].dtype", "float31"),
        (ADD_RELU.replace("schema_version: 1\n", ""), "schema_version", "None"),
        ("", "document", "None"),
    ],
)
def test_a_wrong_spec_names_its_fields(local: TestClient, text: str | bytes, field: str, found: str) -> None:
    response = local.post("/v1/ops/validate", content=text, headers=YAML)
    document = response.json()
    assert (response.status_code, document["valid"], document["spec"]) == (200, False, None)
    errors = {error["field"]: str(error["found"]) for error in document["errors"]}
    assert found in errors[field]


def test_a_wrong_spec_names_lines_and_near_words_stored_or_not(local: TestClient) -> None:
    text = ADD_RELU.replace("float32", "fp32", 1)
    line = text[: text.index("fp32")].count("\n") + 1
    checked = local.post("/v1/ops/validate", content=text, headers=YAML).json()["errors"]
    assert [(error["line"], error["expected"].rpartition("; ")[2]) for error in checked] == [
        (line, "did you mean float32?")
    ]
    assert local.post("/v1/ops", content=text, headers=YAML).json()["errors"] == checked
    response = local.post("/v1/searches", json={**SEARCH, "taget": "cpu"})
    (error,) = response.json()["errors"]
    assert (response.status_code, error["field"], "line" in error) == (422, "taget", False)
    assert "; did you mean target" in error["expected"]


def test_the_examples_are_those_that_ship_and_every_one_is_valid(local: TestClient, examples: Path) -> None:
    found = get(local, "/v1/examples")["items"]
    assert {item["text"] for item in found} == {path.read_text() for path in examples.glob("*.yaml")}
    for item in found:
        checked = local.post("/v1/ops/validate", content=item["text"], headers=YAML).json()
        assert (checked["valid"], checked["name"], checked["devices"]) == (True, item["name"], item["devices"])


def test_what_a_submission_can_say_is_taken(local: TestClient) -> None:
    seeded(database(local))
    with database(local).writing() as session:
        now = time.time()
        session.add(WorkerRow(name="gpu", role="judge", target="cuda:sm_90", facts={}, started_at=now, seen_at=now))
    found = get(local, "/v1/options")
    by_target = {option["target"]: option for option in found["targets"]}
    assert by_target["cuda:sm_90"]["live_workers"] == 1
    assert {provider["name"]: provider["ready"] for provider in found["providers"]} == {
        "openai": False,
        "agent": True,
        "replay": True,
    }
    for policy in found["policies"]:
        assert policy["summary"]
        parameters = {item["name"]: item["default"] for item in policy["parameters"]}
        for target in found["targets"]:
            body = {**SEARCH, "target": target["target"], "language": target["languages"][0]}
            body |= {"policy": {"name": policy["name"], **parameters}, "budget": dict.fromkeys(found["limits"], 10)}
            response = local.post("/v1/searches/estimate", json=body)
            assert response.status_code == 200, response.text


def test_a_tree_of_thousands_is_a_light_answer(local: TestClient) -> None:
    db = database(local)
    search_id = seeded(db)
    now = time.time()
    rows = [
        {
            "id": f"nd_big{number}",
            "search_id": search_id,
            "seq": number,
            "parent_id": f"nd_big{number // 2}" if number > 10 else "nd_root",
            "round": 3,
            "technique": "memory_access",
            "state": "judged",
            "verdict": "accepted",
            "gate": "time",
            "score": 1.5,
            "ci_low": 1.4,
            "ci_high": 1.6,
            "idea": {"title": "Keep the row in registers between the two passes", "mechanism": "m" * 2000},
            "source": "s" * 6000,
            "created_at": now,
            "updated_at": now,
        }
        for number in range(3, 5003)
    ]
    with db.writing() as session:
        session.execute(insert(NodeRow), rows)
    started = time.process_time()
    response = local.get(f"/v1/searches/{search_id}/tree/rows", params={"limit": 5000})
    spent = time.process_time() - started  # of processor time: the machine may be busy
    document = response.json()
    assert len(document["rows"]) == 5000
    assert document["next_after_seq"] == 4999
    assert len(response.content) < 2_000_000
    assert spent < 2, f"{spent:.2f} s"


def test_a_row_names_the_node_that_it_repeats(local: TestClient) -> None:
    db = database(local)
    seeded(db)
    with db.writing() as session:
        node = session.get_one(NodeRow, "nd_bad")
        node.state, node.verdict, node.reason = "closed", None, "duplicate of node #1 (same binary)"
        session.get_one(NodeRow, "nd_good").reason = "no duplicate of node #7: it is judged"
    rows = local.get("/v1/searches/sr_seed/tree/rows").json()["rows"]
    assert [row.get("duplicate_of") for row in rows] == [None, None, 1]
