"""Idempotency-Key: a POST that is sent twice is done once, and both get the same answer.

The answer is stored in the transaction that does the work: after a crash either both are there or neither. Of two
concurrent requests one waits for the other (SQLite), or fails at the primary key, is undone whole and reads the other's
answer (PostgreSQL).
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Annotated, Any

from fastapi import Depends, Header, Request
from fastapi.responses import JSONResponse
from pydantic import BaseModel
from sqlalchemy import bindparam, delete
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from warpsmith.kernels_db.store import audit
from warpsmith.kernels_db.store.db import Database
from warpsmith.kernels_db.store.tables import IdempotencyRow
from warpsmith.service.api.context import find_caller
from warpsmith.service.documents.field_error import FieldError
from warpsmith.service.documents.problems import IdempotencyReuse

KEPT_S = 7 * 86400.0
"""Age in seconds at which keys are deleted."""


_DELETE_OLD = delete(IdempotencyRow).where(IdempotencyRow.created_at < bindparam("before"))


@dataclass(frozen=True)
class Answer:
    """The answer of a POST."""

    status: int
    document: dict[str, Any]
    headers: dict[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, status: int, document: BaseModel, **headers: str) -> Answer:
        """Make an answer with this document; header names are given with underscores."""
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return cls(status, document.model_dump(mode="json"), named)

    def response(self) -> JSONResponse:
        """Make a response of the answer."""
        return JSONResponse(self.document, self.status, headers=self.headers)


@dataclass(frozen=True)
class Once:
    """One POST under its Idempotency-Key, or without one."""

    team: str
    key: str | None
    path: str
    body_digest: str

    def stored(self, session: Session) -> Answer | None:
        """Find the answer that this POST got before; raises IdempotencyReuse for another body.

        The audit log then has the request as unchanged, with the row of that answer.
        """
        if self.key is None:
            return None
        row = session.get(IdempotencyRow, (self.team, self.key, self.path))
        if row is None:
            return None
        if row.body_digest != self.body_digest:
            error = FieldError(
                field="header.Idempotency-Key",
                found=f"a body with SHA-256 {self.body_digest[:12]}...",
                expected=f"the body that this key came with first (SHA-256 {row.body_digest[:12]}...), or a new key",
            )
            raise IdempotencyReuse([error])
        audit.note_repetition(row.response.get("id"))
        return Answer(row.status, row.response, {**row.headers, "Idempotent-Replayed": "true"})

    def record(self, session: Session, answer: Answer) -> None:
        """Store the answer in the transaction that does the work, and name its row in the audit log."""
        if "id" in answer.document:
            audit.note_object(answer.document["id"])
        if self.key is None:
            return
        now = time.time()
        # By the connection: the session may hold rows that are not to be written yet.
        session.connection().execute(_DELETE_OLD, {"before": now - KEPT_S})
        session.add(
            IdempotencyRow(
                team=self.team,
                key=self.key,
                path=self.path,
                body_digest=self.body_digest,
                status=answer.status,
                headers=answer.headers,
                response=answer.document,
                created_at=now,
            )
        )

    def run(self, db: Database, work: Callable[[Session], Answer]) -> Answer:
        """Do `work` once in a write transaction and return its answer, or the stored one."""

        def work_once() -> Answer:
            with db.writing() as session:
                stored = self.stored(session)
                if stored is not None:
                    return stored
                answer = work(session)
                self.record(session, answer)
                return answer

        return self.guard(db, work_once)

    def guard(self, db: Database, work: Callable[[], Answer]) -> Answer:
        """Do `work`, or return the answer of another request with the key that came first.

        `work` records its answer in its own transaction.
        """
        try:
            return work()
        except IntegrityError:
            with db.reading() as session:
                stored = self.stored(session)
            if stored is None:
                raise
            return stored


async def _make_once(
    request: Request,
    key: Annotated[
        str | None,
        Header(
            alias="Idempotency-Key",
            min_length=1,
            max_length=255,
            pattern=r"^[\x21-\x7e]+$",
            description="A value of your choice: sent again with the same body, the request gets the same answer",
            examples=["9f6c1c52-2c5b-4c0f-a9b5-9a5cf6d7a3b1"],
        ),
    ] = None,
) -> Once:
    body = await request.body()  # which the route has read before
    return Once(find_caller(request).team, key, request.url.path, hashlib.sha256(body).hexdigest())


OnceDependency = Annotated[Once, Depends(_make_once)]
