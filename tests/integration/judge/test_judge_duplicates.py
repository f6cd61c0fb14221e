"""A candidate that compiles to what an earlier one compiled to is refused before it takes the device."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.jobs import job
from tests import judging
from tests.support.steps_support import Driver, create, verdict
from warpsmith.kernels_db.job.documents import Level, Verdict
from warpsmith.kernels_db.spec.resolve import limits_with
from warpsmith.kernels_db.store.db import Database
from warpsmith.workers import steps
from warpsmith.workers.gate.normalise import normalised_digest
from warpsmith.workers.judge.protocol.client import JudgeClient
from warpsmith.workers.queue.jobs import job_of

RENAMED = judging.GOOD_NORM.replace("mean", "average").replace("squares", "sum_of_squares")
OTHER = judging.norm_candidate(judging.ALL_ROWS)


@pytest.mark.nightly
def test_a_source_with_other_names_of_locals_is_the_same_binary(tmp_path: Path) -> None:
    assert normalised_digest(RENAMED) != normalised_digest(judging.GOOD_NORM)
    place = judging.layer_norm_workload("bench", "bench", 64, 128)
    with JudgeClient(cache=tmp_path) as judge:
        first = judge.judge(job(judging.LAYER_NORM, [place], judging.GOOD_NORM), timeout_s=280)
        assert first["verdict"] == "accepted", first["reason"]
        assert first["compile"] is not None
        known = {first["compile"]["digest"]: 3}
        found: dict[str, Verdict] = {}
        cases: list[tuple[str, str, Level]] = [
            ("renamed", RENAMED, "screen"),
            ("again", judging.GOOD_NORM, "screen"),
            ("verified", RENAMED, "verify"),
            ("other", OTHER, "screen"),
        ]
        for name, source, level in cases:
            asked = job(judging.LAYER_NORM, [place], source, level=level)
            found[name] = judge.judge({**asked, "known_binaries": known}, timeout_s=280)
    for name in ("renamed", "again"):
        assert (found[name]["verdict"], found[name]["gate"]) == ("rejected", "compile")
        assert found[name]["reason"] == "duplicate of node #3 (same binary)"
        failure = found[name]["failure"]
        assert failure is not None
        assert failure["kind"] == "duplicate"
        assert "exclusive" not in found[name]["seconds"]
        assert found[name]["workloads"] == []
    assert found["verified"]["verdict"] == "accepted"  # what is to be kept is measured, whatever was seen
    assert found["other"]["verdict"] == "accepted"


def _screened(driver: Driver, work: steps.Work, digest: str) -> None:
    document = verdict("screen", score=1.2, compile={"seconds": 0.1, "kernels": [], "digest": digest})
    assert steps.complete_judge(driver.db, work.attempt_id, "me", document, driver.now)


def test_later_candidates_are_told_of_earlier_binaries_and_close_as_duplicates(db: Database) -> None:
    driver = Driver(db, create(db))
    first = driver.until("judge")
    assert first.known_binaries == {}
    _screened(driver, first, "a" * 64)
    second = driver.claim(next(one.id for one in driver.attempts() if (one.kind, one.state) == ("judge", "pending")))
    assert second.known_binaries == {"a" * 64: first.node.seq}
    assert job_of(second, limits_with(None))["known_binaries"] == {"a" * 64: first.node.seq}
    twin = verdict(
        "screen",
        "rejected",
        gate="compile",
        reason="duplicate",
        failure={"kind": "duplicate", "message": "duplicate", "found": first.node.seq},
        compile={"seconds": 0.1, "kernels": [], "digest": "a" * 64},
    )
    assert steps.complete_judge(db, second.attempt_id, "me", twin, driver.now)
    node = driver.nodes()[second.node.seq]
    assert (node.state, node.verdict) == ("closed", None)
    assert node.reason == f"duplicate of node #{first.node.seq} (same binary)"
    assert driver.search().candidates == 2  # it was asked for and written, so it counts
    assert driver.events()[-1] == "node.closed"
