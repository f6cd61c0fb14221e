"""The name of a search's model, as lists show it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from warpsmith.workers.llm.providers.shares import parse_choices
from warpsmith.workers.settings import Settings


def model_names(document: Mapping[str, Any], settings: Settings) -> tuple[str, ...]:
    """Return the models that a document of provider `openai` asks, each once."""
    return tuple(dict.fromkeys(choice.model or settings.openai_model for choice in parse_choices(document)))


def name_model(document: Mapping[str, Any], settings: Settings, pool_header: Mapping[str, Any]) -> str | None:
    """Name the model: those that are asked, or those that the pool was recorded with; None where none is known."""
    if document["provider"] == "openai":
        return ", ".join(model_names(document, settings))
    return pool_header.get("answered_by") or None
