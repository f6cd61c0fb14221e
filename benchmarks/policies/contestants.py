"""The policies that are compared, by the names of the table."""

from __future__ import annotations

from warpsmith.workers.search.policy import Policy, parse_policy

DEFAULT = "idea_beam"

_DOCUMENTS: dict[str, dict[str, str | bool | int]] = {
    DEFAULT: {"name": "idea_beam"},
    "with joins": {"name": "idea_beam", "joins": True},
    "prose_first": {"name": "prose_first", "rounds": 100},
    "without ideas": {"name": "prose_first", "rounds": 100, "prose": False},
    "best_of_n": {"name": "best_of_n", "n": 10_000},
    "greedy": {"name": "greedy", "rounds": 1000},
    "puct": {"name": "puct", "rounds": 1000},
    "random": {"name": "random", "rounds": 1000},
}
"""The documents of the policies.

The default is as it is shipped; the controls end only with the money, whose limit all share.
"""

NAMES = tuple(_DOCUMENTS)


def contestant(name: str, seed: int) -> Policy:
    """Return the policy of a name; one that draws by a seed gets this one."""
    document = _DOCUMENTS[name]
    return parse_policy(document | {"seed": seed} if document["name"] == "random" else document)
