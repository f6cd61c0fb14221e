"""The `agent` provider: a request waits in the database as an ask until somebody answers it.

This side only reads. Opening the ask, waking the attempt and taking the answer change a search's state and stand in
`workers.steps`.
"""

from __future__ import annotations

from sqlalchemy import select

from kernels_db.db import Database
from kernels_db.models import AskRow
from workers.model.base import AskPending, ModelReply, ModelRequest
from workers.model.text import storable


class AgentModel:
    """Answers with what was told to the ask of the request's attempt.

    Nobody counts tokens; the cost is zero; the latency is the wait.
    """

    provider = "agent"

    def __init__(self, db: Database) -> None:
        self._db = db

    def complete(self, request: ModelRequest) -> ModelReply:
        """The answer to `request`, or `AskPending` while there is none."""
        with self._db.reading() as session:
            ask = session.scalar(
                select(AskRow).where(
                    AskRow.attempt_id == request.attempt_id,
                    AskRow.request == request.identity,
                    AskRow.ordinal == request.ordinal,
                    AskRow.state == "answered",
                )
            )
            if ask is None or ask.reply is None:
                raise AskPending(f"nobody has answered yet: {request.summary}")
            return ModelReply(
                text=storable(ask.reply),
                model=ask.answered_by,
                finish_reason="stop",
                prompt_tokens=None,
                completion_tokens=None,
                cost_usd=0.0,
                latency_s=max(0.0, (ask.answered_at or ask.created_at) - ask.created_at),
            )
