"""Upgrades since profiles have a lease: rows in every state of the schema before it (0005), on both databases."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import MetaData, Table, insert, select

from warpsmith.kernels_db.store import leases
from warpsmith.kernels_db.store.counterexamples import keep_counterexample, known_counterexamples
from warpsmith.kernels_db.store.db import Database
from warpsmith.kernels_db.store.profiles import ask_profile, claim_profile, finish_profile, latest_metrics
from warpsmith.kernels_db.store.profiles import source_sha256 as sha256
from warpsmith.kernels_db.store.tables import AttemptRow, NodeRow, ProfileRow, ReverificationRow
from warpsmith.service.api.routes.profiles import make_profile_document

NOW = 5000.0
SOURCE = "def run(x, out):\n    pass\n"
TEXT = 'line\n"quoted" ünï \\ 1e300'
KERNEL = {"name": "add(float *)", "launches": 2, "metrics": {"gpu__time_duration.sum": 52.123456789012345}}
TOLD = {
    "workload": "large",
    "calls": 5,
    "rows": [{"name": "run", "kind": "region", "count": 5, "total_us": 10.1, "mean_us": 2.02}],
    "device": "Example GPU",
    "nsight": {"kernels": [KERNEL], "reason": None},
    "source_sha256": sha256(SOURCE),
}
TRACE = {"displayTimeUnit": "ms", "traceEvents": [{"ts": 0.1, "name": TEXT}]}
DOCUMENTS: dict[str, dict[str, Any]] = {
    "pf_1_pending": {"state": "pending", "sent_at": 1000.5},
    "pf_2_lost": {"state": "running", "sent_at": 1001.5, "until": 4000.25},
    "pf_3_running": {"state": "running", "sent_at": 1002.5, "until": 6000.25},
    "pf_4_done": {"state": "done", **TOLD},
    "pf_5_failed": {"state": "failed", "reason": TEXT},
}
"""How far each profile is, as a worker of that schema wrote it."""


def attempt(ordinal: int, state: str, **values: Any) -> dict[str, Any]:
    empty = {"owner": None, "lease_expires_at": None, "sent_at": None, "error": None}
    times = {"created_at": 10.5, "started_at": None, "finished_at": None, "tries": 0, "deferrals": 0, "not_before": 0.0}
    row = {"id": f"at_{ordinal}", "search_id": "sr", "node_id": "nd_0", "kind": "judge", "ordinal": ordinal}
    return {**row, "params": {"n": ordinal}, "state": state, **empty, **times, **values}


def reverification(ordinal: int, state: str, **values: Any) -> dict[str, Any]:
    names = "asked_by owner lease_expires_at sent_at started_at finished_at outcome reason fingerprint verdict before"
    row = {"id": f"rv_{ordinal}", "kernel_id": "kn", "ordinal": ordinal, "target": "cpu:x86_64", "cause": "asked"}
    return {**row, "state": state, "tries": 0, "created_at": 30.0 + ordinal, **dict.fromkeys(names.split()), **values}


ROWS: dict[str, list[dict[str, Any]]] = {
    "ops": [{"id": "op", "name": "o", "digest": "d", "spec": {"name": "o", "text": TEXT}, "created_at": 1.25}],
    "workloads": [{"id": "wl", "op_id": "op", "device": "cuda", "name": "w", "role": "holdout", "axes": {}}],
    "searches": [
        {
            "id": "sr",
            "op_id": "op",
            "target": "cuda:sm_90",
            "language": "cuda",
            "policy": {},
            "budget": {},
            "model": {},
            "state": "running",
            "round": 1,
            "next_seq": 6,
            "candidates": 5,
            "model_calls": 5,
            "tokens": 2**40,
            "cost_usd": 0.1,
            "active_s": 3.5,
            "created_at": 1.5,
            "updated_at": 2.5,
        }
    ],
    "nodes": [
        {
            "id": f"nd_{seq}",
            "search_id": "sr",
            "seq": seq,
            "round": 0,
            "state": "coded",
            "repairs": 0,
            "ideation": "none",
            "ideated": 0,
            "verification": "none",
            "variant": 0,
            "created_at": 2.0,
            "updated_at": 3.0,
            "source": SOURCE,
            "language": "cuda",
        }
        for seq in range(6)
    ],
    "attempts": [
        attempt(0, "pending"),
        attempt(1, "pending", sent_at=11.0, not_before=9000.0, deferrals=3, error=TEXT),
        attempt(2, "running", owner="w:1:a", lease_expires_at=4000.0, sent_at=11.0, started_at=12.0, tries=1),
        attempt(3, "running", owner="w:1:b", lease_expires_at=6000.0, sent_at=11.0, started_at=12.0, tries=2),
        attempt(4, "running", owner="bundle:bn", started_at=12.0),
        attempt(5, "waiting"),
        attempt(6, "succeeded", owner="w:1:c", started_at=12.0, finished_at=13.0, tries=1),
        attempt(7, "failed", owner="w:1:d", started_at=12.0, finished_at=13.0, tries=3, error=TEXT),
        attempt(8, "cancelled", finished_at=13.0),
    ],
    "verdicts": [
        {
            "id": "vd",
            "search_id": "sr",
            "node_id": "nd_0",
            "attempt_id": "at_6",
            "level": "screen",
            "verdict": "accepted",
            "gate": "done",
            "document": {"score": 1.1},
            "created_at": 13.0,
        }
    ],
    "bundle_jobs": [
        {
            "id": "bj",
            "bundle_id": "bn",
            "search_id": "sr",
            "attempt_id": "at_4",
            "job_digest": "d",
            "created_at": 12.0,
            "merged_at": None,
        }
    ],
    "kernels": [
        {
            "id": "kn",
            "op_id": "op",
            "target": "cpu:x86_64",
            "search_id": "sr",
            "node_id": "nd_1",
            "language": "cpp",
            "source": SOURCE,
            "source_digest": "d",
            "score": 2.0,
            "ci_low": 1.9,
            "ci_high": 2.1,
            "envelope": {},
            "evidence": {"score": 2.0},
            "lineage": [],
            "created_at": 20.0,
            "verified_at": 20.0,
        }
    ],
    "reverifications": [
        reverification(1, "done", owner="w:2:a", tries=1, started_at=31.0, finished_at=32.0, outcome="slower")
        | {"reason": TEXT, "fingerprint": "f", "verdict": {"score": 1.0}, "before": {"verified_at": 20.0}},
        reverification(2, "done", tries=3, finished_at=33.0, outcome="unknown", reason="gave up"),
        reverification(3, "running", owner="w:2:b", lease_expires_at=4000.0, tries=2, before={"verified_at": 20.0}),
        reverification(4, "pending", sent_at=34.0, asked_by="key", cause="schedule"),
    ],
    "profiles": [
        {
            "id": row_id,
            "search_id": "sr",
            "node_id": f"nd_{seq}",
            "document": document,
            "trace": TRACE if document["state"] == "done" else None,
            "created_at": 40.0 + seq,
        }
        for seq, (row_id, document) in enumerate(DOCUMENTS.items(), start=1)
    ],
}


@pytest.fixture(params=["sqlite", "postgresql"])
def before(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Database]:
    """A database of revision 0005 with `ROWS`."""
    file = f"sqlite:///{tmp_path / 'test.db'}"
    database = Database(file if request.param == "sqlite" else str(request.getfixturevalue("postgres_url")))
    database.upgrade("0005")
    tables = tables_of(database)
    with database.engine.begin() as connection:
        for name, rows in ROWS.items():
            connection.execute(insert(tables[name]), rows)
    yield database
    database.dispose()


def tables_of(database: Database) -> dict[str, Table]:
    """The tables as the database itself describes them."""
    metadata = MetaData()
    metadata.reflect(database.engine)
    return dict(metadata.tables)


def dump(database: Database) -> dict[str, dict[str, dict[str, Any]]]:
    """Every row of `ROWS`' tables, by table and id."""
    tables = tables_of(database)
    with database.engine.connect() as connection:
        return {
            name: {row["id"]: dict(row) for row in connection.execute(select(tables[name])).mappings()} for name in ROWS
        }


def test_nothing_is_lost_in_any_state(before: Database) -> None:
    old = dump(before)
    assert {name: len(rows) for name, rows in old.items()} == {name: len(rows) for name, rows in ROWS.items()}
    before.upgrade()
    new = dump(before)
    profiles, old_profiles = new.pop("profiles"), old.pop("profiles")
    assert {row.pop("team") for name in ("searches", "kernels") for row in new[name].values()} == {"default"}
    for added in ("pruned_at", "name", "notes", "model_name", "archived_at"):
        assert {row.pop(added) for row in new["searches"].values()} == {None}
    assert {row.pop(name) for name in ("best_score", "best_limit") for row in new["searches"].values()} == {-1.0}
    assert {row.pop(name) for name in ("try_seconds", "sweep_seconds") for row in new["searches"].values()} == {0.0}
    assert {row.pop("revision") for row in new["nodes"].values()} == {0}
    assert {(row.pop("joins"), row.pop("speedups")) for row in new["nodes"].values()} == {(None, None)}
    assert {row.pop("team") for row in new["reverifications"].values()} == {None}
    for added in ("workloads", "screening", "profile_id", "try_id", "source_sha256", "sweep_s"):
        assert {row.pop(added) for row in new["bundle_jobs"].values()} == {None}
    assert new == old
    for row_id, row in profiles.items():
        document = {"state": row["state"], **row["document"]}
        document |= {} if row["sent_at"] is None else {"sent_at": row["sent_at"]}
        document |= {} if row["lease_expires_at"] is None else {"until": row["lease_expires_at"]}
        assert document == DOCUMENTS[row_id] == old_profiles[row_id]["document"]
        kept = ("id", "search_id", "node_id", "trace", "created_at")
        assert {name: row[name] for name in kept} == {name: old_profiles[row_id][name] for name in kept}
        assert (row["owner"], row["started_at"], row["finished_at"]) == (None, None, None)
        assert row["tries"] == (0 if row["state"] == "pending" else 1)


def test_profiles_are_answered_and_go_on_as_before(before: Database) -> None:
    before.upgrade()
    with before.writing() as session:
        for row_id, document in DOCUMENTS.items():
            told = make_profile_document(session.get_one(ProfileRow, row_id), trace=True)
            assert (told.state, told.reason, told.workload) == (
                document["state"],
                document.get("reason"),
                document.get("workload"),
            )
            assert told.trace == (TRACE if told.state == "done" else None)
        assert latest_metrics(session, session.get_one(NodeRow, "nd_4")) == (KERNEL,)
        asked = [ask_profile(session, f"nd_{seq}", NOW) for seq in (1, 2, 3)]
        assert [announce for _, announce in asked] == [True, True, False]
        # One whose worker died is asked for anew; the others are under way.
        assert [row.id == row_id for (row, _), row_id in zip(asked, DOCUMENTS, strict=False)] == [True, False, True]
        assert finish_profile(session, "pf_3_running", "anybody", "done", {}, NOW) is False
        assert claim_profile(session, "pf_1_pending", "me", 60.0, NOW) is not None
        assert finish_profile(session, "pf_1_pending", "me", "done", TOLD, NOW + 1.0, TRACE)


def test_leases_are_held_and_returned_as_before(before: Database) -> None:
    before.upgrade()
    with before.writing() as session:
        lost = session.scalars(select(AttemptRow.id).where(leases.expired(AttemptRow, NOW))).all()
        assert lost == ["at_2"]  # neither what a worker holds nor what is out in a bundle
        assert leases.renew(session, AttemptRow, "at_3", "w:1:b", 60.0, NOW)
        assert not leases.renew(session, AttemptRow, "at_3", "w:1:a", 60.0, NOW)
        assert leases.held(session, AttemptRow, "at_4", "bundle:bn") is not None
        row = session.scalars(select(ReverificationRow).where(leases.expired(ReverificationRow, NOW))).one()
        assert not leases.return_expired(row, 2)
        assert leases.return_expired(row, 3)
        assert (row.id, row.state, row.tries, row.owner) == ("rv_3", "pending", 2, None)
        session.flush()
        assert leases.claim(session, ReverificationRow, "rv_3", "me", 60.0, NOW)
        assert not leases.claim(session, ReverificationRow, "rv_1", "me", 60.0, NOW)


def test_counterexamples_of_old_ops_candidates_and_kernels_are_kept(before: Database) -> None:
    before.upgrade()
    recipe = {"workload": "w", "seed": 2**62, "changes": [{"input": "x", "move": "fill", "number": 0.1}]}
    failure = {"kind": "counterexample", "message": "wrong", "recipe": recipe, "description": TEXT}
    verdict = {"level": "verify", "verdict": "rejected", "failure": failure}
    with before.writing() as session:
        assert known_counterexamples(session, "op", "cuda:sm_90") == ()
        keep_counterexample(session, "op", "cuda:sm_90", verdict, NOW, node_id="nd_1")
        other = {**verdict, "failure": {**failure, "recipe": {**recipe, "seed": 1}}}
        keep_counterexample(session, "op", "cuda:sm_90", other, NOW + 1, kernel_id="kn")
    with before.reading() as session:
        newer, older = known_counterexamples(session, "op", "cuda:sm_90")
    assert (newer.recipe["seed"], older.recipe, older.description, older.hidden) == (1, recipe, TEXT, True)
