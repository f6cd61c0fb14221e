"""The `replay` provider: a recorded pool answers, so a search runs without a live model."""

from __future__ import annotations

from sqlalchemy import select

from warpsmith.kernels_db.store.db import Database
from warpsmith.kernels_db.store.tables import PoolReplyRow
from warpsmith.workers.llm.base import ModelReply, ModelRequest, PoolMiss
from warpsmith.workers.text import storable


class ReplayModel:
    """Answers from pool `pool_id`.

    Tokens and latency are the recorded ones; the cost is zero, because nothing is spent now.
    """

    provider = "replay"

    def __init__(self, db: Database, pool_id: str) -> None:
        self._db = db
        self._pool_id = pool_id

    def complete(self, request: ModelRequest) -> ModelReply:
        """Return the recorded reply to `request`; raises `PoolMiss` naming it."""
        with self._db.reading() as session:
            reply = session.scalar(
                select(PoolReplyRow.reply).where(
                    PoolReplyRow.pool_id == self._pool_id,
                    PoolReplyRow.request == request.identity,
                    PoolReplyRow.ordinal == request.ordinal,
                )
            )
        if reply is None:
            again = f" (re-ask {request.ordinal})" if request.ordinal else ""
            raise PoolMiss(f"pool {self._pool_id} has no reply to {request.summary}{again} [{request.identity[:12]}]")
        return ModelReply(
            text=storable(reply["reply"]),
            model=reply["model"],
            finish_reason=reply["finish_reason"],
            prompt_tokens=reply["prompt_tokens"],
            completion_tokens=reply["completion_tokens"],
            cost_usd=0.0,
            latency_s=reply["latency_s"] or 0.0,
        )
