"""Context of the routes: database, settings, connection to the workers, metrics."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, TypeVar

from celery import Celery
from fastapi import Depends, Request
from sqlalchemy.exc import OperationalError
from sqlalchemy.orm import Session

from warpsmith.kernels_db.spec.errors import shown
from warpsmith.kernels_db.store import db
from warpsmith.kernels_db.store.db import Database
from warpsmith.kernels_db.store.ids import is_id
from warpsmith.kernels_db.store.table_base import Base
from warpsmith.kernels_db.store.tables import (
    AskRow,
    CampaignRow,
    ImportRow,
    InviteRow,
    KernelRow,
    NodeRow,
    OpRow,
    PoolRow,
    ReverificationRow,
    SearchRow,
    TryRow,
)
from warpsmith.service.api import auth
from warpsmith.service.api.metrics import Metrics
from warpsmith.service.api.outbox import Outbox
from warpsmith.service.api.probes import Probe
from warpsmith.service.api.recent import RecentAnswers
from warpsmith.service.api.streams import Streams
from warpsmith.service.documents.problems import NotFound
from warpsmith.service.settings import ServiceSettings
from warpsmith.workers import log, steps
from warpsmith.workers.settings import ALIVE_AFTER_S

PREFIXES: dict[type[Base], str] = {
    AskRow: "ak",
    CampaignRow: "cm",
    ImportRow: "im",
    InviteRow: "iv",
    KernelRow: "kn",
    NodeRow: "nd",
    OpRow: "op",
    PoolRow: "pl",
    ReverificationRow: "rv",
    SearchRow: "sr",
    TryRow: "ty",
}
"""Prefixes of the ids of rows that have routes."""

logger = log.get(__name__)


Row = TypeVar("Row", bound=Base)


def make_unknown(table: type[Base], row_id: str, noun: str) -> NotFound:
    """Make the problem that no row has this id."""
    expected = f"the id of one that is stored, {PREFIXES[table]}_..."
    return NotFound(f"{noun}: found {shown(row_id)!r}, expected {expected}")


@dataclass(frozen=True)
class Service:
    """One API process."""

    settings: ServiceSettings
    db: Database
    celery: Celery
    outbox: Outbox
    database_probe: Probe
    broker_probe: Probe
    metrics: Metrics
    streams: Streams
    alive_after_s: float = ALIVE_AFTER_S
    mattered: RecentAnswers = field(default_factory=RecentAnswers)

    is_id = staticmethod(is_id)

    def row(self, session: Session, table: type[Row], row_id: str, noun: str) -> Row:
        """Fetch the row with this id; raises NotFound."""
        found = session.get(table, row_id) if self.is_id(row_id) else None
        if found is None:
            raise make_unknown(table, row_id, noun)
        return found

    def advance(self, search_id: str) -> None:
        """Open a search's next steps now, after a change of it was stored.

        Where this fails, the reconciler or the next step that ends opens them.
        """
        try:
            self.outbox.send(steps.advance(self.db, search_id, self.db.now()))
        except (OperationalError, db.StorageFull) as error:
            logger.warning("search.advances_later", search_id=search_id, error=str(error).partition("\n")[0])


def find_service(request: Request) -> Service:
    """Return the context of the process that answers a request."""
    service: Service = request.app.state.service
    return service


def find_caller(request: Request) -> auth.Caller:
    """Return who sends a request."""
    caller: auth.Caller = request.scope.get(auth.SCOPE_CALLER, auth.LOCAL)
    return caller


# Coroutines, though they wait for nothing: the framework hands a plain function to a thread and waits for that.
async def _get_service(request: Request) -> Service:
    return find_service(request)


async def _get_caller(request: Request) -> auth.Caller:
    return find_caller(request)


Asker = Annotated[auth.Caller, Depends(_get_caller)]
"""The caller, by the request's API key or session."""

ServiceDependency = Annotated[Service, Depends(_get_service)]
