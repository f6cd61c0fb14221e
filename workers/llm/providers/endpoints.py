"""An endpoint's settings: its address in one form, its key, its limit of calls at once.

Keys come from settings alone, never from a search: a person who may create searches could otherwise have a key sent to
a foreign host. `WARPSMITH_OPENAI_API_KEY` belongs to the configured endpoint, and `WARPSMITH_MODEL_KEYS` names, for
other endpoints, the environment variable that holds the key; an endpoint in neither gets no key, as local model servers
want it.

A search may name those endpoints alone that settings name: a worker that asks where it is told would otherwise reach
the cloud's metadata, the database and whatever else is near it.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from warpsmith.kernels_db.spec.errors import SpecError
from warpsmith.workers.llm.base import ModelUnavailable
from warpsmith.workers.llm.providers.shares import parse_choices
from warpsmith.workers.settings import Settings

OPENAI_BASE_URL = "https://api.openai.com/v1"
ANY_PUBLIC = "public"
"""Entry of `model_endpoints` that allows every endpoint at a public address."""


def address(base_url: str | None, settings: Settings) -> str:
    """Return the address that a search's `base_url` means; None means the configured one."""
    return origin(base_url or settings.openai_base_url or OPENAI_BASE_URL)


def origin(url: str) -> str:
    """Return `url` in the form in which addresses are compared."""
    return url.strip().rstrip("/")


def is_named(url: str, settings: Settings) -> bool:
    """Check whether the operator's settings name the endpoint: it may be at any address."""
    return url in {
        OPENAI_BASE_URL,
        address(None, settings),
        *settings.model_keys,
        *settings.model_concurrency_by_endpoint,
        *settings.model_endpoints,
    }


def may_ask(url: str, settings: Settings) -> bool:
    """Check whether a search may name the endpoint; an unnamed one is asked at public addresses alone."""
    return is_named(url, settings) or ANY_PUBLIC in settings.model_endpoints


def check_endpoints(document: Mapping[str, Any], settings: Settings) -> None:
    """Refuse, with SpecError, a model document that names an endpoint which searches may not ask."""
    choices = parse_choices(document)
    for number, choice in enumerate(choices):
        if not may_ask(address(choice.base_url, settings), settings):
            field = f"model.models[{number}].base_url" if "models" in document else "model.base_url"
            raise SpecError(field, choice.base_url, "an endpoint that the settings name (WARPSMITH_MODEL_ENDPOINTS)")


def key_of(url: str, settings: Settings) -> str:
    """Return the key of the endpoint at `url`, empty where none is set.

    Raises a final `ModelUnavailable` where the variable that should hold it is not set here.
    """
    name = settings.model_keys.get(url)
    if name is not None:
        key = os.environ.get(name, "")
        if not key:
            raise ModelUnavailable(f"the key of {url} should stand in {name}, which is not set", final=True)
        return key
    if url == address(None, settings) and settings.openai_api_key is not None:
        return settings.openai_api_key.get_secret_value()
    return ""


def has_key(url: str, settings: Settings) -> bool:
    """Check whether settings name a key for the endpoint at `url`.

    The variable itself may be set at the workers alone.
    """
    return url in settings.model_keys or (url == address(None, settings) and settings.openai_api_key is not None)


def concurrency_of(url: str, settings: Settings) -> int:
    """Return the number of calls that this host may have under way at the endpoint."""
    return settings.model_concurrency_by_endpoint.get(url, settings.model_concurrency)
