"""Ways to have a model, behind one interface."""

from warpsmith.workers.llm.base import (
    AskPending,
    Model,
    ModelError,
    ModelReply,
    ModelRequest,
    ModelUnavailable,
    PoolMiss,
)
from warpsmith.workers.llm.providers.factory import check_model, open_model

__all__ = [
    "AskPending",
    "Model",
    "ModelError",
    "ModelReply",
    "ModelRequest",
    "ModelUnavailable",
    "PoolMiss",
    "check_model",
    "open_model",
]
