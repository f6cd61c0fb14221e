"""The tasks: claim an attempt, do its step, commit, advance, send.

They hold no state; the database does.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import wraps

from celery import Celery, current_task
from celery.exceptions import Reject
from sqlalchemy.exc import SQLAlchemyError

from warpsmith.kernels_db.job.documents import Verdict
from warpsmith.kernels_db.spec.op import SpecErrors
from warpsmith.kernels_db.store.db import StorageFull
from warpsmith.workers import log, reverification, steps, tracing
from warpsmith.workers.judge.machine.host import is_out_of_room
from warpsmith.workers.judging.submission import limits_of
from warpsmith.workers.llm.providers.factory import open_model
from warpsmith.workers.queue import dispatch, process
from warpsmith.workers.queue.celery_app import app
from warpsmith.workers.queue.import_task import perform_import
from warpsmith.workers.queue.jobs import job_of, summary
from warpsmith.workers.queue.lease import LeaseKeeper, LeaseLost
from warpsmith.workers.queue.model_step import ModelStep
from warpsmith.workers.queue.poison import names_row
from warpsmith.workers.queue.process import WorkerProcess
from warpsmith.workers.queue.profile_task import perform_profile, survivor_profile
from warpsmith.workers.queue.reverification_task import perform_reverification
from warpsmith.workers.queue.try_task import perform_try
from warpsmith.workers.queue_names import (
    DUE_TASK,
    IMPORT_TASK,
    JUDGE_TASK,
    MODEL_TASK,
    PROFILE_TASK,
    REVERIFY_TASK,
    TRY_TASK,
    judge_queue,
)
from warpsmith.workers.steps import Work, placement

logger = log.get(__name__)

DoStep = Callable[[WorkerProcess, Work, str, steps.Following], bool]
"""Does a claimed step for its owner and commits it, with what follows it; False where the lease was lost."""


def perform(sender: Celery, attempt_id: str, do: DoStep) -> None:
    """Take the step whose turn it is in the message's queue, `do` it, and open the next ones.

    That is the attempt of the message where no other team waits (`steps.turns`). A database that cannot be used ends
    the task quietly: the attempt is or becomes pending, and the reconciler sends it again. Raises Reject, which gives
    the message to another worker, where this one may take no step (`check_fitness`).
    """
    here = process.current()
    owner = here.claim_token()
    try:
        check_fitness(here)
        work = steps.take(here.db, attempt_id, owner, here.settings.lease_s, here.db.now(), here.device_bytes())
        if work is None:
            return
        ids = {"search": work.search_id, "node": work.node.id, "attempt": work.attempt_id, "step": work.kind}
        link = steps.find_submission(here.db, work.search_id) if tracing.is_on() else None
        about = {"target": work.target, "language": work.language, "level": work.level, "tries": work.tries}
        with tracing.span(f"step {work.kind}", link=link) as note, log.bound(**ids):
            note(**ids, **about)
            following = steps.Following()
            done = _do(here, work, owner, do, following)
            note(committed=done)
            if done:
                messages = following.messages
                if messages is None:
                    messages = steps.advance(here.db, work.search_id, here.db.now())
                with tracing.continued({}):  # each of them has a trace of its own
                    dispatch.send(sender, messages)
            else:
                logger.warning("somebody else holds the step now; its result was dropped")
    except steps.UnknownSearch:
        logger.info("the search was cancelled and deleted after this step")
    except (SQLAlchemyError, StorageFull) as error:
        logger.error("the database cannot be used; the step will be done again", error=str(error).splitlines()[0])


def check_fitness(here: WorkerProcess) -> None:
    """Raise Reject where this worker may take no step: its device is lost, or the schema is not its own.

    In the latter case the worker ends, and waits for its schema when it is started again.
    """
    if here.ill is not None:
        raise Reject(here.ill, requeue=True)
    fault = here.schema.fault()
    if fault is not None:
        logger.error("no step is taken; this worker ends", reason=fault)
        process.end_worker()
        raise Reject(fault, requeue=True)


def _do(here: WorkerProcess, work: Work, owner: str, do: DoStep, following: steps.Following) -> bool:
    try:
        if work.reached is not None:
            logger.info("the search waits for its team's quota", reason=work.reached.describe())
            return steps.wait_for_quota(here.db, work.attempt_id, owner, work.reached, here.db.now(), following)
        return do(here, work, owner, following)
    except (SQLAlchemyError, StorageFull):
        raise
    except SpecErrors as error:
        return steps.give_up(here.db, work.attempt_id, owner, str(error), here.db.now(), following)
    except Exception as error:
        if is_out_of_room(error):
            return _put_off(here, work, owner, f"this host has no room left on its disk: {error}", following)
        # A fault of ours: doing the step again would meet it again, so its branch ends and the search goes on. That is
        # committed by itself: the fault may be in what follows, of which nothing was committed.
        logger.exception("the step failed")
        following.messages = None
        return steps.give_up(here.db, work.attempt_id, owner, f"{type(error).__name__}: {error}", here.db.now())


def _put_off(here: WorkerProcess, work: Work, owner: str, reason: str, following: steps.Following) -> bool:
    """Give the step back for another host, or for this one when it can do it; nothing counts against it."""
    logger.error("the step is put off", reason=reason, delay_s=here.settings.lease_s)
    return steps.put_off(here.db, work.attempt_id, owner, reason, here.settings.lease_s, [], here.db.now(), following)


def _give_back(here: WorkerProcess, work: Work, owner: str, error: Exception, following: steps.Following) -> bool:
    """Give a step back that its judge made no verdict of."""
    from warpsmith.workers.judge.protocol.client import JudgeUnfit  # noqa: PLC0415 - model workers have no judge

    if isinstance(error, JudgeUnfit) and error.part == "disk":
        return _put_off(here, work, owner, str(error), following)
    # A judge that cannot even start for want of room says no more than that it ended.
    if (full := here.find_full_disk()) is not None:
        return _put_off(here, work, owner, f"{full} has no room left: {error}", following)
    logger.warning("the judge did not answer; the step returns to the queue", error=str(error), tries=work.tries)
    # The lease ends now: the reconciler counts the try, and gives up after too many.
    return steps.renew(here.db, work.attempt_id, owner, 0.0, here.db.now())


def ask(here: WorkerProcess, work: Work, owner: str, following: steps.Following) -> bool:
    """Do an ideate or code step."""
    step = ModelStep(here.db, here.settings, work, owner, here.db.now, following)
    with _lease(here, work, owner):
        return step.run(open_model(work.model, here.settings, here.db))


def judge(here: WorkerProcess, work: Work, owner: str, following: steps.Following) -> bool:
    """Do a judge or verify step."""
    from warpsmith.workers.judge.protocol.client import JobRefused, JudgeDied, JudgeTimeout  # noqa: PLC0415 - model workers have no judge
    from warpsmith.workers.judge.protocol.configurations import verify_configurations  # noqa: PLC0415 - as well

    capped = steps.refusal(here.db, work, here.db.now())
    if capped is not None:
        return steps.give_up(here.db, work.attempt_id, owner, capped, here.db.now(), following)
    try:
        with _lease(here, work, owner) as lease, tracing.span("judge job", "CLIENT") as note:
            began, job = time.monotonic(), job_of(work, limits_of(here.settings))
            verdict = here.judge_job(job, lease.check)
            note(verdict=verdict["verdict"], gate=verdict["gate"])
            misfit = _learn_misfit(here, work, verdict)
            if misfit is None:
                verify_configurations(
                    job,
                    verdict,
                    work.configurations,
                    device_s=work.sweep_s,
                    judge=lambda further, left_s: here.judge_job(further, lease.check, left_s),
                    timeout_s=here.settings.judge_job_timeout_s,
                    began=began,
                )
    except LeaseLost:
        return False
    except JobRefused as refused:
        reason = f"the judge refuses the job: {refused}"
        return steps.give_up(here.db, work.attempt_id, owner, reason, here.db.now(), following)
    except (JudgeDied, JudgeTimeout) as error:
        return _give_back(here, work, owner, error, following)
    if misfit is not None:
        logger.warning("this GPU is too small for the step, which waits for a larger one", reason=misfit)
        return steps.put_off(here.db, work.attempt_id, owner, misfit, placement.SOON_S, [], here.db.now(), following)
    logger.info("judged", **summary(verdict))
    done = steps.complete_judge(here.db, work.attempt_id, owner, verdict, here.db.now(), following)
    if done:
        _profile_survivor(here, work)
    return done


def _learn_misfit(here: WorkerProcess, work: Work, verdict: Verdict) -> str | None:
    """Say why this worker's GPU is too small for a step, by the memory that its judge found; None where it is not.

    Where that is less than the driver had told the worker goes by it from then on, and takes no step that is too large.
    Of several steps that were in hand by then each goes back: which of them told the worker makes no difference.
    """
    found = verdict["device"].get("memory_bytes")
    if verdict["gate"] != "memory" or not isinstance(found, int):
        return None
    need = placement.measure_need(work.op, work.target)
    if need is None:
        return None
    known = here.device_bytes()
    if known is None or found < known:
        here.correct_device(found)
    return None if need.fits(found) else need.describe(found, "this host's GPU")


def _profile_survivor(here: WorkerProcess, work: Work) -> None:
    """Announce a profile of a candidate that survives; a search does as well without."""
    try:
        wanted = survivor_profile(here, work)
    except (SQLAlchemyError, StorageFull) as error:
        logger.warning("no profile of a survivor", error=str(error).splitlines()[0])
        return
    if wanted is not None:
        dispatch.send_profile(app, wanted, judge_queue(work.target))


def _lease(here: WorkerProcess, work: Work, owner: str) -> LeaseKeeper:
    lease_s = here.settings.lease_s

    def renew() -> bool:
        return steps.renew(here.db, work.attempt_id, owner, lease_s, here.db.now())

    return LeaseKeeper(renew, lease_s)


def model_step(attempt_id: str) -> None:
    """Do the ideate or code step of an attempt."""
    if names_row(attempt_id):
        perform(app, attempt_id, ask)


def judge_step(attempt_id: str) -> None:
    """Do the judge or verify step of an attempt."""
    if names_row(attempt_id):
        perform(app, attempt_id, judge)


def profile(profile_id: str) -> None:
    """Make a profile that was asked for."""
    if not names_row(profile_id):
        return
    here = process.current()
    try:
        check_fitness(here)
        perform_profile(here, profile_id)
    except (SQLAlchemyError, StorageFull) as error:
        logger.error("the database cannot be used; ask for the profile again", error=str(error).splitlines()[0])


def reverify(row_id: str) -> None:
    """Judge a stored kernel anew."""
    if not names_row(row_id):
        return
    here = process.current()
    try:
        check_fitness(here)
        perform_reverification(here, row_id)
    except (SQLAlchemyError, StorageFull) as error:
        logger.error("the database cannot be used; it will be judged again", error=str(error).splitlines()[0])


def import_upload(row_id: str) -> None:
    """Read the upload whose turn it is, which may be another than the message's."""
    if not names_row(row_id):
        return
    here = process.current()
    try:
        check_fitness(here)
        following = perform_import(here)
    except (SQLAlchemyError, StorageFull) as error:
        logger.error("the database cannot be used; it will be imported again", error=str(error).splitlines()[0])
        return
    dispatch.send_imports(app, following)


def try_candidate(try_id: str) -> None:
    """Judge a candidate that was tried for a node."""
    if not names_row(try_id):
        return
    here = process.current()
    try:
        check_fitness(here)
        perform_try(here, try_id)
    except (SQLAlchemyError, StorageFull) as error:
        logger.error("the database cannot be used; it will be tried again", error=str(error).splitlines()[0])


def reverify_due() -> None:
    """Ask for re-verifications of a few kernels that are due.

    Celery beat sends this (`celery_app`).
    """
    here = process.current()
    try:
        check_fitness(here)
        messages = reverification.sweep(here.db, here.db.now(), here.settings)
    except (SQLAlchemyError, StorageFull) as error:
        logger.error("the database cannot be used; the next look comes", error=str(error).splitlines()[0])
        return
    dispatch.send_reverifications(app, messages)


def _traced(name: str, do: Callable[..., None]) -> Callable[..., None]:
    """Do a task in the trace of its message."""

    @wraps(do)
    def run(*row_id: str) -> None:
        if not tracing.is_on():
            do(*row_id)
            return
        with tracing.continued(vars(current_task.request)), tracing.span(f"run {name}", "CONSUMER"):
            do(*row_id)

    return run


for _name, _do_task in (
    (MODEL_TASK, model_step),
    (JUDGE_TASK, judge_step),
    (PROFILE_TASK, profile),
    (REVERIFY_TASK, reverify),
    (IMPORT_TASK, import_upload),
    (TRY_TASK, try_candidate),
    (DUE_TASK, reverify_due),
):
    app.task(_traced(_name, _do_task), name=_name, shared=False)
