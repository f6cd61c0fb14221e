"""The `agent` provider: a request waits in the database as an ask until it is answered.

With a pool, a recorded request is answered from it, so that a recorded search goes on where its recording ends. This
side only reads. Opening the ask, waking the attempt and taking the answer change a search's state and are in
`warpsmith.workers.steps`.
"""

from __future__ import annotations

from sqlalchemy import select

from warpsmith.kernels_db.store.db import Database
from warpsmith.kernels_db.store.tables import AskRow
from warpsmith.workers.llm.base import AskPending, ModelReply, ModelRequest, PoolMiss, approximate_tokens
from warpsmith.workers.llm.providers.replay_model import ReplayModel
from warpsmith.workers.text import storable


class AgentModel:
    """Answers with the reply that was given to the ask of the request's attempt.

    Tokens are those of the prompt and the reply, about (an agent's thoughts are not seen); the cost is zero; the
    latency is the wait.
    """

    provider = "agent"

    def __init__(self, db: Database, recorded: ReplayModel | None = None) -> None:
        """`recorded` answers first."""
        self._db = db
        self._recorded = recorded

    def complete(self, request: ModelRequest) -> ModelReply:
        """Return the recorded reply or the answer to `request`; raises `AskPending` before either."""
        if self._recorded is not None:
            try:
                return self._recorded.complete(request)
            except PoolMiss:
                pass  # unanswered when the pool was recorded: it is asked now
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
                prompt_tokens=approximate_tokens(sum(len(message["content"]) for message in request.messages)),
                completion_tokens=approximate_tokens(len(ask.reply)),
                cost_usd=0.0,
                latency_s=max(0.0, (ask.answered_at or ask.created_at) - ask.created_at),
            )
