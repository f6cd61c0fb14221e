"""Open a model from a search's `model` document."""

from __future__ import annotations

from typing import Any

from warpsmith.kernels_db.spec.errors import SpecError
from warpsmith.kernels_db.spec.near_misses import one_of
from warpsmith.kernels_db.store.db import Database
from warpsmith.workers.llm.base import Model
from warpsmith.workers.llm.providers.agent_model import AgentModel
from warpsmith.workers.llm.providers.replay_model import ReplayModel
from warpsmith.workers.llm.providers.shares import parse_choices
from warpsmith.workers.settings import Settings

PROVIDERS = {"openai": {"model", "base_url", "models"}, "replay": {"pool"}, "agent": {"pool"}}


def check_model(document: dict[str, Any]) -> None:
    """Refuse, with `SpecError`, a document that `open_model` could not open.

    Whether a pool exists is the store's to say.
    """
    provider = document.get("provider")
    if not isinstance(provider, str) or provider not in PROVIDERS:
        raise SpecError("model.provider", provider, one_of(provider, PROVIDERS))
    allowed = PROVIDERS[provider]
    for field in sorted(document.keys() - allowed - {"provider"}):
        # The value is not repeated: it may be a key put here by mistake.
        raise SpecError(f"model.{field}", "a field of this name", f"only {', '.join(sorted({'provider', *allowed}))}")
    if provider == "openai":
        parse_choices(document)
        return
    if provider == "agent" and "pool" not in document:
        return
    for field in sorted(allowed):
        value = document.get(field)
        if not isinstance(value, str) or not 0 < len(value.strip()) <= 512:
            raise SpecError(f"model.{field}", value, "a non-empty string")


def open_model(document: dict[str, Any], settings: Settings, db: Database) -> Model:
    """Open the model that `document` names. Makes no call; raises `SpecError`."""
    check_model(document)
    match document["provider"]:
        case "replay":
            return ReplayModel(db, document["pool"])
        case "agent":
            return AgentModel(db, ReplayModel(db, document["pool"]) if "pool" in document else None)
    # Only this provider needs the openai client, whose import takes longer than all the rest of a process that merely
    # checks a document.
    from warpsmith.workers.llm.providers.shared_model import SharedModel  # noqa: PLC0415

    return SharedModel(settings, parse_choices(document))
