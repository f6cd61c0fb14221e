"""Judge a candidate that was tried for a node, in a judge worker."""

from __future__ import annotations

from sqlalchemy.exc import SQLAlchemyError

from warpsmith.kernels_db.job.documents import Verdict
from warpsmith.kernels_db.spec.op import SpecErrors
from warpsmith.kernels_db.store.db import StorageFull
from warpsmith.workers import log
from warpsmith.workers.judging.submission import limits_of
from warpsmith.workers.queue.jobs import try_job
from warpsmith.workers.queue.lease import LeaseKeeper, LeaseLost
from warpsmith.workers.queue.process import WorkerProcess
from warpsmith.workers.steps.trying import TryWork, claim_try, finish_try, put_try_back, renew_try

logger = log.get(__name__)


def perform_try(here: WorkerProcess, try_id: str) -> None:
    """Take the try if it is still open, judge its candidate, store the verdict.

    A judge that dies leaves it to the reconciler, which counts the tries.
    """
    owner = here.claim_token()
    work = claim_try(here.db, try_id, owner, here.settings.lease_s, here.db.now())
    if work is None:
        return
    with log.bound(candidate_try=try_id, search=work.search_id, node=work.node_id):
        result = _judge(here, work, owner)
        if result is None:
            return
        verdict, reason, lost_s = result
        logger.info("tried", level=work.level, verdict=None if verdict is None else verdict["verdict"], reason=reason)
        if not finish_try(here.db, try_id, owner, verdict, reason, here.db.now(), lost_s):
            logger.warning("another worker holds the try now; its result was dropped")


def _judge(here: WorkerProcess, work: TryWork, owner: str) -> tuple[Verdict | None, str, float] | None:
    """Return the verdict, or None and why there is none, and then the seconds of the device that this took.

    None alone where another try comes.
    """
    from warpsmith.workers.judge.protocol.client import JobRefused, JudgeDied, JudgeTimeout, JudgeUnfit  # noqa: PLC0415 - model workers have no judge

    settings, started = here.settings, here.db.now()
    try:
        job = try_job(work, limits_of(settings))
        with LeaseKeeper(
            lambda: renew_try(here.db, work.id, owner, settings.lease_s, here.db.now()), settings.lease_s
        ) as lease:
            verdict = here.judge_job(job, lease.check)
        return verdict, verdict["reason"], 0.0
    except LeaseLost:
        logger.warning("another worker holds the try now; it was cut short")
    except JudgeTimeout as error:  # the candidate's own doing, most likely: its author waits, and it cost the device
        lost_s = here.db.now() - started if error.at_work and work.level != "compile" else 0.0
        return None, f"the judge gave no verdict: {error}", lost_s
    except JudgeDied as error:
        if (isinstance(error, JudgeUnfit) and error.part == "disk") or here.find_full_disk() is not None:
            logger.error("this host's disk cannot be used; the try waits for another", error=str(error))
            put_try_back(here.db, work.id, owner)
            return None
        logger.warning("the judge did not answer; it will be tried again", error=str(error), tries=work.tries)
        renew_try(here.db, work.id, owner, 0.0, here.db.now())
    except (SQLAlchemyError, StorageFull):
        raise
    # A refusal, or a fault of ours, would come again and says nothing of the candidate.
    except (JobRefused, SpecErrors) as refused:
        return None, f"the judge cannot take the job: {refused}", 0.0
    except Exception as error:
        logger.exception("the try failed")
        return None, f"{type(error).__name__}: {error}", 0.0
    return None
