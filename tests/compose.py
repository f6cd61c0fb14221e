"""Reading docker-compose.yml as Docker Compose does: merge keys, variables with defaults and required ones."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

COMPOSE_FILE = Path(__file__).parents[1] / "docker-compose.yml"
VARIABLE = re.compile(r"\$\{(?P<name>\w+)(?:(?P<operator>:\?|:-)(?P<rest>[^}]*))?\}")


class MissingVariableError(ValueError):
    """A variable that the file requires is not set."""


def load(variables: Mapping[str, str]) -> dict[str, Any]:
    """The compose file with its variables filled in from `variables`."""
    return interpolate(yaml.safe_load(COMPOSE_FILE.read_text(encoding="utf-8")), variables)


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
        if found:
            return found
        if match["operator"] == ":?":
            raise MissingVariableError(f"{match['name']}: {match['rest']}")
        return match["rest"] or ""

    return VARIABLE.sub(fill, value)
