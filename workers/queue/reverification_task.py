"""Judge a stored kernel anew, in a judge worker."""

from __future__ import annotations

from sqlalchemy.exc import SQLAlchemyError

from warpsmith.kernels_db.job.documents import Job, Verdict
from warpsmith.kernels_db.spec.op import SpecErrors
from warpsmith.kernels_db.store.counterexamples import ask_first
from warpsmith.kernels_db.store.db import StorageFull
from warpsmith.workers import log
from warpsmith.workers.judging.submission import limits_of, record_job
from warpsmith.workers.queue.lease import LeaseKeeper, LeaseLost
from warpsmith.workers.queue.process import WorkerProcess
from warpsmith.workers.reverification.finding import Finding, finding
from warpsmith.workers.reverification.rows import Reverification, claim, finish, renew
from warpsmith.workers.settings import Settings

logger = log.get(__name__)


def perform_reverification(here: WorkerProcess, row_id: str) -> None:
    """Take the re-verification if it is still open, judge the kernel in full, store the result.

    A judge that dies leaves it to the reconciler, which counts the tries.
    """
    owner = here.claim_token()
    work = claim(here.db, row_id, owner, here.settings.lease_s, here.db.now())
    if work is None:
        return
    with log.bound(reverification=row_id, kernel=work.kernel_id):
        result = _result(here, work, owner)
        if result is None:
            return
        found, verdict = result
        logger.info("re-verified", outcome=found.outcome, reason=found.reason)
        if not finish(here.db, row_id, owner, found, verdict, here.db.now()):
            logger.warning("somebody else holds the re-verification now; its result was dropped")


def _result(here: WorkerProcess, work: Reverification, owner: str) -> tuple[Finding, Verdict | None] | None:
    """Return the result and its verdict; None where there is none yet, and another try comes."""
    from warpsmith.workers.judge.protocol.client import JobRefused, JudgeDied, JudgeTimeout  # noqa: PLC0415 - model workers have no judge

    settings = here.settings
    try:
        job = reverification_job(work, settings)
        with LeaseKeeper(
            lambda: renew(here.db, work.id, owner, settings.lease_s, here.db.now()), settings.lease_s
        ) as lease:
            verdict = here.judge_job(job, lease.check)
        return finding(work.evidence, verdict), verdict
    except LeaseLost:
        logger.warning("somebody else holds the re-verification now; it was cut short")
        return None
    except (JudgeDied, JudgeTimeout) as error:
        logger.warning("the judge did not answer; it will be tried again", error=str(error), tries=work.tries)
        renew(here.db, work.id, owner, 0.0, here.db.now())
        return None
    except (SQLAlchemyError, StorageFull):
        raise
    # A refusal, or a fault of ours, would come again and says nothing of the kernel.
    except JobRefused as refused:
        return Finding("unknown", f"the judge refuses the job: {refused}"), None
    except SpecErrors as error:
        return Finding("unknown", f"the op cannot be judged: {error}"), None
    except Exception as error:
        logger.exception("the re-verification failed")
        return Finding("unknown", f"{type(error).__name__}: {error}"), None


def reverification_job(work: Reverification, settings: Settings) -> Job:
    """Build the judge's job: a full verification, the op's counterexamples first.

    Raises SpecErrors where the op asks for what the judge cannot do.
    """
    candidate = work.language, work.source
    job = record_job(work.op, work.target, "verify", candidate, limits_of(settings))
    ask_first(job, work.counterexamples)
    return job
