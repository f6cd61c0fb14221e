"""What a kernel's lineage says of how it won, in words that another search can read. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

JOINED = "joined"
"""The `origin` of a node, and of its entry in a lineage, whose candidate was put together from others."""

NUMBERED = re.compile(r"#(\d{1,6})\b")
"""How a text names a candidate of its search, as #7."""

_PARTS = ("technique", "title", "mechanism")
"""Parts of an idea that say how a kernel won, and that a search works with."""


def last_idea(lineage: Iterable[Mapping[str, Any]]) -> dict[str, Any] | None:
    """Return the idea of the last step that had one, from the root to the winner; None where none says how it won.

    A join is passed over for the latest of its parts: its idea tells of numbers and times of its own search. The
    candidates that an idea names are told as those of another search, by their titles where the lineage has them: here
    their numbers are others'.
    """
    steps = [entry for entry in lineage if entry.get("origin") != JOINED]
    for entry in reversed(steps):
        idea = entry.get("idea")
        if isinstance(idea, Mapping) and all(isinstance(idea.get(part), str) for part in _PARTS):
            titles = _titles(steps)
            return {name: _elsewhere(value, titles) for name, value in idea.items()}
    return None


def _titles(steps: Iterable[Mapping[str, Any]]) -> dict[int, str]:
    """Return the titles of a lineage's ideas by the numbers of their candidates, naming no further candidate."""
    ideas = ((entry.get("seq"), entry.get("idea")) for entry in steps)
    named = ((seq, idea.get("title")) for seq, idea in ideas if isinstance(seq, int) and isinstance(idea, Mapping))
    return {seq: NUMBERED.sub("another", title) for seq, title in named if isinstance(title, str)}


def _elsewhere(value: Any, titles: Mapping[int, str]) -> Any:
    """Return a text with the candidates that it names told as those of another search."""

    def told(found: re.Match[str]) -> str:
        title = titles.get(int(found[1]))
        return f"no. {found[1]} of its search" + (f' ("{title}")' if title else "")

    return NUMBERED.sub(told, value) if isinstance(value, str) else value
