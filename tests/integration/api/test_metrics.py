"""What /metrics says of queues: the numbers that workers are scaled by."""

from __future__ import annotations

import time
from typing import Any

import pytest
from fastapi.testclient import TestClient
from prometheus_client.parser import text_string_to_metric_families
from sqlalchemy import select, update

from tests.support.api_support import database, seed
from warpsmith.kernels_db.store.tables import AttemptRow, KernelRow, ProfileRow, ReverificationRow, SearchRow
from warpsmith.workers.queue.heartbeat import Worker, beat

JUDGE = "judge.cpu-x86_64"
GPU = "judge.cuda-sm_90"


def measured(client: TestClient, name: str) -> dict[str, float]:
    """The values of a metric of queues."""
    families = {family.name: family for family in text_string_to_metric_families(client.get("/metrics").text)}
    return {sample.labels["queue"]: sample.value for sample in families[f"warpsmith_queue_{name}"].samples}


def add_step(client: TestClient, ordinal: int, **values: Any) -> None:
    """A step of the seeded search: due, of its judge's queue, a minute old."""
    usual = {"kind": "judge", "state": "pending", "created_at": time.time() - 60, "params": {}, "not_before": 0.0}
    row = {"search_id": "sr_seed", "node_id": "nd_good", "ordinal": ordinal, **usual, **values}
    with database(client).writing() as session:
        session.add(AttemptRow(id=f"at_{ordinal}", **row))


@pytest.fixture
def seeded(client: TestClient) -> TestClient:
    """A client whose service holds one running search without any step."""
    seed(database(client))
    with database(client).writing() as session:
        session.execute(update(AttemptRow).values(state="succeeded"))
    return client


def test_an_empty_queue_is_said_to_be_empty(seeded: TestClient) -> None:
    for name in ("depth", "running", "age_seconds", "retried", "deferred", "oversized"):
        assert measured(seeded, name) == {"model": 0.0, JUDGE: 0.0}


def test_due_steps_wait_and_held_ones_run(seeded: TestClient) -> None:
    add_step(seeded, 10)
    add_step(seeded, 11, kind="verify", created_at=time.time() - 600)
    add_step(seeded, 12, kind="code")
    add_step(seeded, 13, state="running", lease_expires_at=time.time() + 30, tries=1)
    add_step(seeded, 14, state="running", lease_expires_at=None)  # out in a bundle: no worker has it
    assert measured(seeded, "depth") == {"model": 1.0, JUDGE: 2.0}
    assert measured(seeded, "running") == {"model": 0.0, JUDGE: 1.0}
    ages = measured(seeded, "age_seconds")
    assert 60 <= ages["model"] < 600 <= ages[JUDGE] < 1200


def test_a_step_that_was_put_off_waits_once_it_is_due(seeded: TestClient) -> None:
    add_step(seeded, 10, kind="ideate", not_before=time.time() + 300, deferrals=2)
    assert (measured(seeded, "depth")["model"], measured(seeded, "deferred")["model"]) == (0.0, 1.0)
    add_step(seeded, 11, kind="code", created_at=time.time() - 7200, not_before=time.time() - 60, deferrals=1)
    assert (measured(seeded, "depth")["model"], measured(seeded, "deferred")["model"]) == (1.0, 1.0)
    assert 60 <= measured(seeded, "age_seconds")["model"] < 600  # since it was due, not since it was made


@pytest.mark.parametrize("state", ["paused", "queued"])
def test_steps_of_a_search_that_does_not_run_want_no_worker(seeded: TestClient, state: str) -> None:
    add_step(seeded, 10)
    with database(seeded).writing() as session:
        session.execute(update(SearchRow).values(state=state))
    assert measured(seeded, "depth")[JUDGE] == 0.0


def test_steps_that_are_too_large_for_each_gpu_are_counted(seeded: TestClient) -> None:
    add_step(seeded, 10, not_before=time.time() + 15)  # as the worker that it was too large for left it
    add_step(seeded, 11, kind="code")
    with database(seeded).writing() as session:
        session.execute(update(SearchRow).values(target="cuda:sm_90"))
    assert measured(seeded, "oversized")[GPU] == 0.0, "without a GPU nothing is too large for one"
    for name, memory_bytes, expected in (("small", 1 << 20, 1.0), ("large", 80 << 30, 0.0)):
        worker = Worker(f"judge@{name}", "judge", "cuda:sm_90", 1, 1.0)
        beat(database(seeded), worker, {"device": {"memory_bytes": memory_bytes}}, time.time())
        assert measured(seeded, "oversized") == {"model": 0.0, GPU: expected}


def test_steps_that_a_worker_lost_are_counted(seeded: TestClient) -> None:
    add_step(seeded, 10, tries=1)
    add_step(seeded, 11, state="running", lease_expires_at=time.time() + 30, tries=2)
    add_step(seeded, 12, state="running", lease_expires_at=time.time() + 30, tries=1)
    assert measured(seeded, "retried") == {"model": 0.0, JUDGE: 2.0}


def test_profiles_and_reverifications_want_the_judge_of_their_target(seeded: TestClient) -> None:
    now = time.time()
    profile = {"search_id": "sr_seed", "node_id": "nd_good", "document": {}, "created_at": now - 9}
    with database(seeded).writing() as session:
        held = {
            "kernel_id": session.scalars(select(KernelRow.id)).first(),
            "target": "cuda:sm_90",
            "cause": "asked",
            "created_at": now - 86_400,
        }
        # Never sent, since no judge of the target lives: it is what brings the first one up.
        session.add(ReverificationRow(id="rv_1", ordinal=1, state="pending", sent_at=None, **held))
        session.add(ProfileRow(id="pf_1", state="pending", sent_at=now - 9, **profile))
        session.add(ProfileRow(id="pf_2", state="pending", sent_at=now - 86_400, **profile))  # its message was lost
        session.add(ProfileRow(id="pf_3", state="running", lease_expires_at=now + 60, **profile))
        session.add(ProfileRow(id="pf_4", state="running", lease_expires_at=now - 60, **profile))  # nobody has it now
    assert measured(seeded, "depth") == {"model": 0.0, JUDGE: 1.0, GPU: 1.0}
    assert measured(seeded, "running") == {"model": 0.0, JUDGE: 1.0, GPU: 0.0}
    assert measured(seeded, "age_seconds")[GPU] >= 86_400


def test_the_broker_is_looked_at(local: TestClient) -> None:
    assert "warpsmith_broker_up 0.0" in local.get("/metrics").text.splitlines()
