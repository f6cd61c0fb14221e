"""The policies that are compared, by the names of the table."""

from __future__ import annotations

from workers.search.policy import Policy, parse_policy

DEFAULT = "idea_beam"

_DOCUMENTS = {
    DEFAULT: {"name": "idea_beam"},
}

CONTESTANTS: dict[str, Policy] = {name: parse_policy(document) for name, document in _DOCUMENTS.items()}
