"""Reading docker-compose.yml as Docker Compose does: merge keys, variables with defaults and required ones."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import yaml

from tests import REPOSITORY

COMPOSE_FILE = REPOSITORY / "docker-compose.yml"
VARIABLE = re.compile(r"\$\{(?P<name>\w+)(?:(?P<operator>:\?|:-|:\+)(?P<rest>[^}]*))?\}")


class MissingVariableError(ValueError):
    """A variable that the file requires is not set."""


def load(variables: Mapping[str, str]) -> dict[str, Any]:
    """The compose file with its variables filled in from `variables`."""
    document: dict[str, Any] = interpolate(_document(), variables)
    for service in document["services"].values():
        service["environment"] = _passed_on(service.get("environment", {}), variables)
    return document


@lru_cache
def _document() -> Any:
    return yaml.safe_load(COMPOSE_FILE.read_text(encoding="utf-8"))


def _passed_on(environment: Mapping[str, Any], variables: Mapping[str, str]) -> dict[str, Any]:
    """A name without a value takes that of `variables`, and is not set where they have none."""
    filled = {name: variables.get(name) if value is None else value for name, value in environment.items()}
    return {name: value for name, value in filled.items() if value is not None}


def interpolate(value: Any, variables: Mapping[str, str]) -> Any:
    """`value` with `${NAME}`, `${NAME:-default}` and `${NAME:?message}` replaced."""
    if isinstance(value, dict):
        return {key: interpolate(item, variables) for key, item in value.items()}
    if isinstance(value, list):
        return [interpolate(item, variables) for item in value]
    if not isinstance(value, str):
        return value

    def fill(match: re.Match[str]) -> str:
        found = variables.get(match["name"], "")
        if match["operator"] == ":+":
            return match["rest"] if found else ""
        if found:
            return found
        if match["operator"] == ":?":
            raise MissingVariableError(f"{match['name']}: {match['rest']}")
        return match["rest"] or ""

    return VARIABLE.sub(fill, value)
