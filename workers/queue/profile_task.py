"""Profiling a node's candidate in a judge worker, on request or because it survives.

It is no step: no search changes by it, except in the facts that its later requests tell of the candidate. The rows are
the candidate's own word (`warpsmith.workers.judge.gates.profiling`), kept for people to look at.
"""

from __future__ import annotations

from typing import Any, Literal

from warpsmith.kernels_db.spec.op import SpecErrors
from warpsmith.kernels_db.store.profiles import (
    ProfileWork,
    ask_profile,
    claim_profile,
    finish_profile,
    latest_metrics,
    source_sha256,
)
from warpsmith.kernels_db.store.quotas import DEVICE_SECONDS, find_reached
from warpsmith.kernels_db.store.tables import NodeRow, SearchRow
from warpsmith.workers import log
from warpsmith.workers.judge.nsight import access
from warpsmith.workers.judging.submission import limits_of
from warpsmith.workers.queue.jobs import profile_job
from warpsmith.workers.queue.process import WorkerProcess
from warpsmith.workers.settings import Settings
from warpsmith.workers.steps import Work
from warpsmith.workers.steps.requested import read_profile
from warpsmith.workers.steps.rows import plain

logger = log.get(__name__)

GRACE_S = 60.0
"""Seconds beyond the judge's own limit after which a profile may be asked for anew."""


def perform_profile(here: WorkerProcess, profile_id: str) -> None:
    """Take the profile if it is still open, make it, and store the result."""
    owner, lease_s = here.claim_token(), here.settings.judge_job_timeout_s + GRACE_S
    with here.db.writing() as session:
        work = claim_profile(session, profile_id, owner, lease_s, here.db.now())
    if work is None:
        return
    with log.bound(profile=profile_id, node=work.node_id):
        told, trace, held_s = _made(here, work)
        logger.info("profiled", done=trace is not None, reason=told.get("reason"))
        with here.db.writing() as session:
            state: Literal["done", "failed"] = "failed" if trace is None else "done"
            finish_profile(session, profile_id, owner, state, told, here.db.now(), trace, held_s)


def survivor_profile(here: WorkerProcess, work: Work) -> str | None:
    """Return the profile to announce for a candidate that was just judged.

    Nsight Compute's metrics help the next candidates that build on it. Asked for where this host has `ncu`, for the
    candidate that leads its search and for those that were verified: from these the next round's parents come. None
    where there is nothing to ask for, and where the team has no device seconds left. No step waits for it.
    """
    if not work.target.startswith("cuda") or work.node.source is None or not _has_ncu(here.settings):
        return None
    with here.db.writing() as session:
        node = session.get_one(NodeRow, work.node.id)
        search = session.get_one(SearchRow, work.search_id)
        survives = node.verification == "passed" or search.best_node_id == node.id
        if not survives or node.verdict != "accepted" or latest_metrics(session, node):
            return None
        now = here.db.now()
        if find_reached(session, search.team, now, (DEVICE_SECONDS,)) is not None:
            return None
        row, announce = ask_profile(session, node.id, now)
        return row.id if announce else None


def _has_ncu(settings: Settings) -> bool:
    return access.find(settings.ncu) is not None and access.permission() != "refused"


def _made(here: WorkerProcess, work: ProfileWork) -> tuple[dict[str, Any], dict[str, Any] | None, float]:
    """Return what `read_profile` reads, and the seconds for which the judge held the device."""
    from warpsmith.workers.judge.protocol.client import JudgeError  # noqa: PLC0415 - model workers have no judge

    try:
        verdict = here.judge_job(profile_job(work, limits_of(here.settings)))
        return *read_profile(verdict, source_sha256(work.source)), verdict["seconds"].get("exclusive", 0.0)
    except (SpecErrors, JudgeError) as error:
        return {"reason": str(plain(str(error)))}, None, 0.0
    except Exception as error:
        # A fault of ours: the waiting reader is told, and the worker goes on.
        logger.exception("the profile failed")
        return {"reason": str(plain(f"{type(error).__name__}: {error}"))}, None, 0.0
