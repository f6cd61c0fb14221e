"""Parsers of `--budget`, `--policy` and `--model`: pure functions from text to documents."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from warpsmith.kernels_db.spec.near_misses import one_of
from warpsmith.service.cli.files import parse_object, read_object
from warpsmith.service.client.errors import misuse

BUDGET_NAMES = {
    "candidates": "candidates",
    "calls": "model_calls",
    "model_calls": "model_calls",
    "tokens": "tokens",
    "cost": "cost_usd",
    "cost_usd": "cost_usd",
    "time": "wall_clock_s",
    "wall_clock_s": "wall_clock_s",
    "gpu": "gpu_seconds",
    "gpu_seconds": "gpu_seconds",
    "tries": "try_seconds",
    "try_seconds": "try_seconds",
    "sweeps": "sweep_seconds",
    "sweep_seconds": "sweep_seconds",
}
TIMES = frozenset({"wall_clock_s", "gpu_seconds", "try_seconds", "sweep_seconds"})
SECONDS = {"s": 1, "m": 60, "h": 3600}
PROVIDERS = "replay:FILE, replay:POOL-ID, openai, openai:MODEL, agent, agent:FILE, agent:POOL-ID or a JSON document"
MODEL_DOCUMENT = 'a JSON object such as {"provider": "openai", "models": [{"model": "gpt-5"}]}'


DEFAULT_BUDGET = {"candidates": 20}
"""The limits of a search where none are given, as on the dashboard's page; a recorded pool has its own."""


def choose_budget(text: str, model: Mapping[str, Any]) -> dict[str, float] | None:
    """Return the budget document that `--budget` names; None leaves it to the service, `{}` has no limit."""
    if text == "none":
        return {}
    if text:
        return parse_budget(text)
    return None if {"file", "pool"} & model.keys() else dict(DEFAULT_BUDGET)


def parse_budget(text: str) -> dict[str, float]:
    """Read `candidates=20,cost=1.5,time=10m` as the budget document of a search."""
    budget: dict[str, float] = {}
    for name, value in _split_pairs("--budget", text):
        if name not in BUDGET_NAMES:
            misuse(f"--budget {name}", name, one_of(name, BUDGET_NAMES))
        budget |= parse_limit(f"--budget {name}", name, value)
    return budget


def parse_limit(option: str, name: str, text: str) -> dict[str, float]:
    """Read the limit `name` (one of BUDGET_NAMES) as a budget document; `option` named it."""
    document_name = BUDGET_NAMES[name]
    number = _parse_seconds(text) if document_name in TIMES else _parse_number(text)
    if number is None or number <= 0:
        misuse(
            option,
            text,
            "a number above zero" + (", as in 90, 90s, 10m or 1h" if document_name in TIMES else ""),
        )
    if document_name in {"candidates", "model_calls", "tokens"} and number != int(number):
        misuse(option, text, "a whole number")
    return {document_name: int(number) if number == int(number) else number}


def parse_duration(option: str, text: str) -> float:
    """Read a time such as 90, 90s, 10m or 1h as seconds."""
    number = _parse_seconds(text)
    if number is None or number <= 0:
        misuse(option, text, "a time above zero, as in 90, 90s, 10m or 1h")
    return number


def parse_sizes(option: str, text: str) -> dict[str, int | float]:
    """Read `batch_size=64,eps=1e-6` as numbers by name."""
    sizes: dict[str, int | float] = {}
    for name, value in _split_pairs(option, text):
        number = _parse_number(value)
        if number is None:
            misuse(f"{option} {name}", value, "a number")
        sizes[name] = _whole(value, number)
    return sizes


def parse_policy(text: str) -> dict[str, str | int | float | bool]:
    """Read `beam=2,ideas=3` as the policy document of a search; the service checks the names."""
    policy: dict[str, str | int | float | bool] = {"name": "idea_beam"}
    for name, value in _split_pairs("--policy", text):
        number = _parse_number(value)
        if value in {"true", "false"}:
            policy[name] = value == "true"
        elif number is None:
            policy[name] = value
        else:
            policy[name] = _whole(value, number)
    return policy


def choose_model(model: str | None, model_file: Path | None, base_url: str | None) -> dict[str, Any] | None:
    """Return the model that --model, --model-file and --base-url name; None without all three."""
    if model_file is None:
        return None if model is None and base_url is None else parse_model(model or "openai", base_url)
    for option, value in (("--model", model), ("--base-url", base_url)):
        if value is not None:
            misuse(option, value, "not both it and --model-file")
    return read_model(model_file)


def read_model(path: Path) -> dict[str, Any]:
    """Read a search's model document from a JSON file, for one model or several with shares."""
    return {"provider": "openai", **read_object("--model-file", path, MODEL_DOCUMENT)}


def parse_model(text: str, base_url: str | None) -> dict[str, Any]:
    """Read a search's model document; a pool file gives `file`, its path, in place of `pool`."""
    if text.lstrip().startswith("{"):
        if base_url is not None:
            misuse("--base-url", base_url, "no endpoint beside a document: it names its own")
        return {"provider": "openai", **parse_object("--model", text, MODEL_DOCUMENT)}
    provider, _, rest = text.partition(":")
    if base_url is not None and provider != "openai":
        misuse("--base-url", base_url, "no endpoint: only an openai model has one")
    if provider == "openai":
        return {"provider": "openai"} | ({"model": rest} if rest else {}) | ({"base_url": base_url} if base_url else {})
    if provider in ("replay", "agent") and rest:
        if Path(rest).is_file():
            return {"provider": provider, "file": rest}
        if rest.startswith("pl_"):
            return {"provider": provider, "pool": rest}
        misuse("--model", text, f"{provider}: with a pool file that exists, or with a pool's id (pl_...)")
    if provider != "agent" or rest:
        misuse("--model", text, PROVIDERS)
    return {"provider": "agent"}


def _split_pairs(option: str, text: str) -> list[tuple[str, str]]:
    pairs: list[tuple[str, str]] = []
    for part in filter(None, (part.strip() for part in text.split(","))):
        name, equals, value = part.partition("=")
        if not equals or not name.strip() or not value.strip():
            misuse(option, part, "name=value pairs, separated by commas")
        if name.strip() in dict(pairs):
            misuse(f"{option} {name.strip()}", part, "each name once")
        pairs.append((name.strip(), value.strip()))
    return pairs


def _parse_number(text: str) -> float | None:
    try:
        number = float(text)
    except ValueError:
        return None
    return number if abs(number) < 1e18 else None


def _whole(text: str, number: float) -> int | float:
    """Return the exact integer that `text` writes, which a float may not hold; `number` where it writes another."""
    try:
        return int(text)
    except ValueError:
        return number


def _parse_seconds(text: str) -> float | None:
    unit = SECONDS.get(text[-1:])
    number = _parse_number(text[:-1]) if unit is not None else _parse_number(text)
    return None if number is None else number * (unit or 1)
