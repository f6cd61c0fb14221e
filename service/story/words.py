"""Words that the parts of a story share."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from warpsmith.service.documents.escaping import quoted, said
from warpsmith.service.documents.figures import ratio, repaired
from warpsmith.service.story.facts import StoryNode

LONGEST_TITLE = 80
LANGUAGES = {"cpp": "C++", "triton": "Triton", "cuda": "CUDA"}


def count(number: int, noun: str, plural: str | None = None) -> str:
    """`1 call`, `2 calls`."""
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"


def listed(words: Sequence[str]) -> str:
    """`a, b and c`."""
    return " and ".join([", ".join(words[:-1]), words[-1]]) if len(words) > 1 else "".join(words)


def called(technique: str | None) -> str:
    """A technique in words."""
    return said((technique or "no technique").replace("_", " "), LONGEST_TITLE)


def named(node: StoryNode) -> str:
    """`#3 “one pass over the row”`."""
    return f"#{node.seq} {quoted(node.title, LONGEST_TITLE)}" if node.title else f"#{node.seq}"


def standing(node: StoryNode) -> str:
    """The node's speed-up with its interval."""
    return ratio(node.score, node.ci95)


def placed(node: StoryNode) -> str:
    """Technique, round and repairs."""
    when = (
        f"round {node.round}"
        if node.round
        else {"branch": "branched", "stored": "a stored kernel"}.get(node.origin, "to begin with")
    )
    whose = ", a person's idea" if node.origin == "person" else ""
    return f"{called(node.technique)}, {when}{repaired(node.repairs).replace(' after', ', after')}{whose}"


def best_of(nodes: Iterable[StoryNode]) -> StoryNode | None:
    """The fastest right one; of equals the older."""
    right = [node for node in nodes if node.right and node.score is not None]
    return max(right, key=lambda node: (node.score or 0.0, -node.seq), default=None)


def span(seconds: float) -> str:
    """A time in words: `42 s`, `3 min 5 s`, `2 h 10 min`."""
    whole = round(seconds)
    minutes, rest = divmod(whole, 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes} min" if minutes else f"{hours} h"
    if minutes:
        return f"{minutes} min {rest} s" if rest else f"{minutes} min"
    return f"{seconds:.1f} s" if 0 < seconds < 10 else f"{whole} s"
