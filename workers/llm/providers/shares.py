"""Several models in one search: which of them a request goes to. Pure.

The model document of provider `openai` names one model, or several with a share each:

    {"provider": "openai", "models": [
        {"model": "gpt-5", "share": 1, "for": ["ideate", "reflect"]},
        {"model": "qwen3-coder", "base_url": "http://localhost:8000/v1", "share": 3, "for": ["code", "repair"]},
        {"model": "gpt-5-mini", "for": ["code"]}]}

Of the models that serve a request's kind, one is drawn in proportion to the shares, by a hash of the request's identity
and ordinal: the same one after a crash, in another process and on replay, while a re-ask may go to another.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from warpsmith.kernels_db.spec.errors import SpecError

KINDS = ("ideate", "reflect", "code", "repair")
MOST_MODELS = 32
LARGEST_SHARE = 1e6
_FIELDS = ("model", "base_url", "share", "for")


@dataclass(frozen=True)
class Choice:
    """A model that a search may ask.

    `model` and `base_url` are None where the settings decide; `kinds` of request that it serves; `share` is relative to
    the others of its kind.
    """

    model: str | None
    base_url: str | None = None
    share: float = 1.0
    kinds: tuple[str, ...] = KINDS


def parse_choices(document: Mapping[str, Any]) -> tuple[Choice, ...]:
    """Read the models of a document of provider `openai`, the simple form or `models`.

    Raises SpecError naming the field.
    """
    if "models" not in document:
        return (Choice(_text("model.model", document, "model"), _url("model.base_url", document)),)
    for field in ("model", "base_url"):
        if document.get(field) is not None:
            raise SpecError(f"model.{field}", document[field], "no value beside models: each entry names its own")
    found = document["models"]
    if not isinstance(found, list) or not 0 < len(found) <= MOST_MODELS:
        raise SpecError("model.models", found, f"a list of 1 to {MOST_MODELS} models")
    choices = tuple(_choice(f"model.models[{number}]", entry) for number, entry in enumerate(found))
    for kind in KINDS:
        if not serving(choices, kind):
            served = sorted({kind for choice in choices for kind in choice.kinds})
            raise SpecError("model.models", f"models for {', '.join(served)}", f"a model for {kind} too")
    return choices


def serving(choices: Iterable[Choice], kind: str) -> list[Choice]:
    """Return the models that serve requests of `kind`.

    Reflection that no entry names goes to those that have ideas.
    """
    choices = list(choices)
    named = [choice for choice in choices if kind in choice.kinds]
    return serving(choices, "ideate") if kind == "reflect" and not named else named


def choose(choices: Iterable[Choice], kind: str, identity: str, ordinal: int) -> Choice:
    """Choose the model of the request; `parse_choices` guarantees that there is one."""
    candidates = serving(choices, kind)
    digest = hashlib.sha256(f"which model\0{kind}\0{identity}\0{ordinal}".encode()).digest()
    point = int.from_bytes(digest[:8], "big") / 2**64 * math.fsum(choice.share for choice in candidates)
    for choice in candidates:
        point -= choice.share
        if point < 0:
            return choice
    return candidates[-1]  # rounding


def _choice(where: str, entry: object) -> Choice:
    if not isinstance(entry, Mapping):
        raise SpecError(where, entry, "an object such as {'model': 'gpt-5', 'share': 1}")
    for field in sorted(entry.keys() - set(_FIELDS)):
        # The value is not repeated: it may be a key put here by mistake.
        raise SpecError(f"{where}.{field}", "a field of this name", f"only {', '.join(_FIELDS)}")
    model = _text(f"{where}.model", entry, "model")
    if model is None:
        raise SpecError(f"{where}.model", None, "the model's name")
    return Choice(
        model, _url(f"{where}.base_url", entry), _share(f"{where}.share", entry), _kinds(f"{where}.for", entry)
    )


def _text(where: str, entry: Mapping[str, Any], field: str) -> str | None:
    value = entry.get(field)
    if value is not None and not (isinstance(value, str) and 0 < len(value.strip()) <= 512):
        raise SpecError(where, value, "a non-empty string")
    return value


def _url(where: str, entry: Mapping[str, Any]) -> str | None:
    url = _text(where, entry, "base_url")
    if url is not None and not usable(url):
        shown = "a URL with user or password" if "@" in url else url
        raise SpecError(where, shown, "an http:// or https:// URL without user or password")
    return url


def _share(where: str, entry: Mapping[str, Any]) -> float:
    share = entry.get("share", 1)
    if isinstance(share, bool) or not isinstance(share, int | float) or not 0 < share <= LARGEST_SHARE:
        raise SpecError(where, share, f"a number above 0 and at most {LARGEST_SHARE:g}")
    return float(share)


def _kinds(where: str, entry: Mapping[str, Any]) -> tuple[str, ...]:
    kinds = entry.get("for", list(KINDS))
    if not isinstance(kinds, list) or not kinds or not all(isinstance(kind, str) and kind in KINDS for kind in kinds):
        raise SpecError(where, kinds, f"a list of {', '.join(KINDS)}")
    return tuple(kind for kind in KINDS if kind in kinds)


def usable(url: str) -> bool:
    """Check whether `url` can be an endpoint's address."""
    try:
        parts = urlsplit(url)
        return (
            parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0 and "@" not in parts.netloc
        )
    except ValueError:
        return False
