"""Read an upload, in a model worker."""

from __future__ import annotations

from collections.abc import Iterable

from sqlalchemy.exc import SQLAlchemyError

from warpsmith.kernels_db.store.db import StorageFull
from warpsmith.workers import imports, log
from warpsmith.workers.imports import ImportWork
from warpsmith.workers.queue.lease import LeaseKeeper, LeaseLost
from warpsmith.workers.queue.process import WorkerProcess
from warpsmith.workers.steps import Message

logger = log.get(__name__)


def perform_import(here: WorkerProcess) -> Iterable[Message]:
    """Take the import whose turn it is, read it and store what it holds; returns the message of the next.

    A worker that dies leaves it to the reconciler, which counts the tries.
    """
    settings = here.settings
    work = imports.take(here.db, here.claim_token(), settings.lease_s, here.db.now())
    if work is None:
        return []
    with log.bound(imported=work.id, kind=work.kind, team=work.team):
        if _carry_out(here, work):
            logger.info("imported")
        else:
            logger.warning("somebody else holds the import now; its result was dropped")
    with here.db.reading() as session:
        following = imports.find_next(session)
        return [] if following is None else [imports.message(following)]


def _carry_out(here: WorkerProcess, work: ImportWork) -> bool:
    settings, db = here.settings, here.db
    try:
        with LeaseKeeper(lambda: imports.renew(db, work, settings.lease_s, db.now()), settings.lease_s) as lease:
            return imports.carry_out(db, work, settings, db.now, lease.check)
    except LeaseLost:
        return False
    except (SQLAlchemyError, StorageFull):
        raise
    except Exception as error:
        # A fault of ours: reading it again would meet it again.
        logger.exception("the import failed")
        told = f"{type(error).__name__}; the worker's log says more under {work.id}"
        return imports.fail(db, work, "internal-error", told, db.now())
