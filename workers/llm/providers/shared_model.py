"""Several OpenAI-compatible models as one.

Each request goes to the model that its identity draws.
"""

from __future__ import annotations

from collections.abc import Sequence

from warpsmith.workers.llm.base import ModelReply, ModelRequest
from warpsmith.workers.llm.providers.openai_model import OpenAIModel
from warpsmith.workers.llm.providers.shares import Choice, choose
from warpsmith.workers.settings import Settings


class SharedModel:
    """The models of one search; the reply names the one that answered."""

    provider = "openai"

    def __init__(self, settings: Settings, choices: Sequence[Choice]) -> None:
        self._choices = choices
        self._models = {
            choice: OpenAIModel(settings, model=choice.model, base_url=choice.base_url) for choice in choices
        }

    def complete(self, request: ModelRequest) -> ModelReply:
        """Return the reply of the model that `request` draws, or raise its `ModelUnavailable`.

        No other is asked in its place, so that a search's calls do not depend on which endpoint was down when.
        """
        choice = choose(self._choices, request.kind, request.identity, request.ordinal)
        return self._models[choice].complete(request)
