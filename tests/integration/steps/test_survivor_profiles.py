"""Nsight Compute's metrics of a candidate that survives: asked for, stored, and told to whoever builds on it."""

from __future__ import annotations

import dataclasses
import stat
import time
from pathlib import Path
from typing import Any

import pytest

from tests.integration.steps.test_profiles import ROW, TRACE, Here, coded
from tests.support import api_support
from tests.support.steps_support import Driver, create, small_policy, verdict
from warpsmith.kernels_db.job.documents import Verdict
from warpsmith.kernels_db.store.db import Database, StorageFull
from warpsmith.kernels_db.store.profiles import ask_profile, latest_metrics, latest_profile
from warpsmith.kernels_db.store.tables import NodeRow, ProfileRow, SearchRow
from warpsmith.service.api.routes.profiles import make_profile_document
from warpsmith.service.cli.commands.profiles import print_profile
from warpsmith.workers import steps
from warpsmith.workers.llm.prompt import requests
from warpsmith.workers.queue import dispatch, tasks
from warpsmith.workers.queue.model_step import request_context
from warpsmith.workers.queue.profile_task import perform_profile, survivor_profile

TIME = "gpu__time_duration.sum"
KERNEL = {"name": "add_relu(float *)", "launches": 2, "metrics": {TIME: 52.25}}


def profiled(**nsight: Any) -> Verdict:
    found = {"workload": "large", "calls": 5, "rows": [ROW], "trace": TRACE, "nsight": {"kernels": [KERNEL], **nsight}}
    return verdict("profile", "ambiguous", device={"name": "Example GPU"}, profile=found)


@pytest.fixture
def driver(db: Database) -> Driver:
    """A search on a GPU with one candidate a round."""
    driver = Driver(db, create(db), decide=small_policy(codes=1, ideas=1, repairs=0, rounds=2))
    with db.writing() as session:
        search = session.get_one(SearchRow, driver.search_id)
        search.target, search.language = "cuda:sm_90", "cuda"
    return driver


@pytest.fixture
def here(db: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Here:
    """A judge worker whose host has ncu."""
    ncu = tmp_path / "ncu"
    ncu.write_text("")
    ncu.chmod(ncu.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("WARPSMITH_NCU", str(ncu))
    monkeypatch.setattr("warpsmith.workers.judge.nsight.access.permission", lambda: "everybody")
    return Here(db, profiled(), tmp_path)


def judged(driver: Driver, score: float = 2.0, word: Any = "accepted") -> steps.Work:
    """The next candidate, with a verdict."""
    work = driver.until("judge")
    found = verdict("screen", word, score=score if word == "accepted" else None)
    assert steps.complete_judge(driver.db, work.attempt_id, "me", found, driver.now)
    return work


def test_metrics_of_the_leading_candidate_reach_the_next_request_and_no_identity(driver: Driver, here: Here) -> None:
    work = judged(driver)
    wanted = survivor_profile(here, work)
    assert wanted is not None
    assert survivor_profile(here, work) is None  # it is under way
    perform_profile(here, wanted)
    assert survivor_profile(here, work) is None  # it is known
    asked = driver.until("ideate")
    assert asked.best is not None
    assert asked.best.metrics == (KERNEL,)
    context = request_context(asked)
    built = requests.build(context)
    assert "Nsight Compute, on the largest bench workload, cold caches:" in built.messages[-1]["content"]
    assert "kernel add_relu(float *), mean of 2 launches:" in built.messages[-1]["content"]
    assert context.best is not None
    without = dataclasses.replace(context, best=dataclasses.replace(context.best, metrics=()))
    assert requests.build(without).identity == built.identity
    assert "Nsight" not in requests.build(without).messages[-1]["content"]


def test_metrics_of_other_code_are_not_told(driver: Driver, here: Here) -> None:
    work = judged(driver)
    wanted = survivor_profile(here, work)
    assert wanted is not None
    perform_profile(here, wanted)
    with driver.db.writing() as session:
        node = session.get_one(NodeRow, work.node.id)
        assert latest_metrics(session, node) == (KERNEL,)
        node.source = "def run(): ...\n"
        assert latest_metrics(session, node) == ()


def test_a_reason_is_stored_and_no_metrics_are_told(driver: Driver, here: Here) -> None:
    here.double.answer = profiled(kernels=[], reason="the driver keeps its performance counters from ncu")
    work = judged(driver)
    wanted = survivor_profile(here, work)
    assert wanted is not None
    perform_profile(here, wanted)
    with driver.db.reading() as session:
        row = session.get_one(ProfileRow, wanted)
        assert row.document["nsight"]["reason"].startswith("the driver keeps")
        assert latest_metrics(session, session.get_one(NodeRow, work.node.id)) == ()


def test_only_what_survives_on_a_gpu_with_ncu_is_profiled(
    driver: Driver, here: Here, monkeypatch: pytest.MonkeyPatch
) -> None:
    rejected = judged(driver, word="rejected")
    assert survivor_profile(here, rejected) is None
    work = judged(driver)
    assert survivor_profile(here, dataclasses.replace(work, target="cpu:x86_64")) is None
    here.settings.ncu = "off"
    assert survivor_profile(here, work) is None
    here.settings.ncu = None
    monkeypatch.setattr("warpsmith.workers.judge.nsight.access.find", lambda _: None)
    assert survivor_profile(here, work) is None
    with driver.db.reading() as session:
        assert latest_profile(session, work.node.id) is None


def test_a_slower_candidate_is_profiled_once_it_is_verified(driver: Driver, here: Here) -> None:
    judged(driver)
    slower = judged(driver, score=1.5)
    assert survivor_profile(here, slower) is None
    with driver.db.writing() as session:
        session.get_one(NodeRow, slower.node.id).verification = "passed"
    assert survivor_profile(here, slower) is not None


def test_a_judge_worker_announces_it_and_goes_on_where_it_cannot(
    driver: Driver, here: Here, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[tuple[str, str]] = []
    monkeypatch.setattr(dispatch, "send_profile", lambda _, wanted, queue: sent.append((wanted, queue)))
    work = judged(driver)
    tasks._profile_survivor(here, work)
    tasks._profile_survivor(here, work)
    assert [queue for _, queue in sent] == ["judge.cuda-sm_90"]

    def full(*_: object) -> None:
        raise StorageFull("no room")

    monkeypatch.setattr(tasks, "survivor_profile", full)
    tasks._profile_survivor(here, work)
    assert len(sent) == 1


@pytest.mark.parametrize("reason", [None, "the driver keeps its performance counters from ncu"])
def test_api_and_command_tell_the_metrics_or_why_there_are_none(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], reason: str | None
) -> None:
    app = api_support.application(api_support.settings_for(tmp_path))
    db = app.state.service.db
    node = coded(db)
    answer = profiled() if reason is None else profiled(kernels=[], reason=reason)
    with db.writing() as session:
        wanted = ask_profile(session, node.id, time.time())[0].id
    perform_profile(Here(db, answer, tmp_path), wanted)
    with db.reading() as session:
        row = session.get_one(ProfileRow, wanted)
        told = make_profile_document(row, trace=False)
    assert told.nsight is not None
    assert told.nsight.reason == reason
    print_profile(told)
    said = capsys.readouterr()
    assert (reason or "kernel add_relu(float *), mean of 2 launches:") in said.err
