"""The innermost middleware: an audit entry for every request that changes something or is refused."""

from __future__ import annotations

from typing import Final, get_args

from sqlalchemy.exc import SQLAlchemyError
from starlette.concurrency import run_in_threadpool
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from warpsmith.kernels_db.store import audit
from warpsmith.kernels_db.store.db import Database, StorageFull
from warpsmith.service.documents.audit import AuditResult, Refusal
from warpsmith.workers import log

REFUSALS: Final[dict[int, AuditResult]] = {int(status): status for status in get_args(Refusal)}

logger = log.get(__name__)


class AuditTrail:
    """Opens the entry, which the transaction of the change writes; writes it itself where nothing was changed.

    `access.enforce` says whose entry it is and of which action. A refusal that cannot be stored is logged.
    """

    def __init__(self, app: ASGIApp, db: Database) -> None:
        self.app = app
        self.db = db

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        entry = audit.Entry(source=(scope.get("client") or ("unknown",))[0])

        async def note_outcome(message: Message) -> None:
            if message["type"] == "http.response.start" and entry.action is not None:
                status: int = message["status"]
                if status in REFUSALS or (status < 400 and not entry.written):
                    await run_in_threadpool(self._write, entry, REFUSALS.get(status, "unchanged"))
            await send(message)

        with audit.acting(entry):
            await self.app(scope, receive, note_outcome)

    def _write(self, entry: audit.Entry, result: AuditResult) -> None:
        entry.written = True  # or the transaction would write it as done
        try:
            with self.db.writing() as session:
                audit.write(session, entry, result)
        except (SQLAlchemyError, StorageFull) as error:
            logger.error("an audit entry could not be stored", action=entry.action, result=result, error=str(error))
