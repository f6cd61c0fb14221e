"""Words that the parts of a story share."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from warpsmith.service.documents.escaping import mark_foreign, quote_foreign
from warpsmith.service.documents.figures import format_ratio, format_repairs
from warpsmith.service.story.facts import StoryNode

LONGEST_TITLE = 80


def count(number: int, noun: str, plural: str | None = None) -> str:
    """Format a count: `1 call`, `2 calls`."""
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"


def join_words(words: Sequence[str]) -> str:
    """Join words as `a, b and c`."""
    return " and ".join([", ".join(words[:-1]), words[-1]]) if len(words) > 1 else "".join(words)


def name_technique(technique: str | None) -> str:
    """Write a technique in words."""
    return mark_foreign((technique or "no technique").replace("_", " "), LONGEST_TITLE)


def name_node(node: StoryNode) -> str:
    """Write a node as `#3 “one pass over the row”`."""
    return f"#{node.seq} {quote_foreign(node.title, LONGEST_TITLE)}" if node.title else f"#{node.seq}"


def format_standing(node: StoryNode) -> str:
    """Format the node's speed-up with its interval."""
    return format_ratio(node.score, node.ci95)


def describe_place(node: StoryNode) -> str:
    """Describe a node's technique, round and repairs."""
    when = (
        f"round {node.round}"
        if node.round
        else {"branch": "branched", "stored": "a stored kernel"}.get(node.origin, "to begin with")
    )
    whose = {"person": ", a person's idea", "joined": ", put together from others"}.get(node.origin, "")
    return f"{name_technique(node.technique)}, {when}{format_repairs(node.repairs).replace(' after', ', after')}{whose}"


def choose_best(nodes: Iterable[StoryNode]) -> StoryNode | None:
    """Choose the fastest right node; among equals the older one."""
    right = [node for node in nodes if node.right and node.score is not None]
    return max(right, key=lambda node: (node.score or 0.0, -node.seq), default=None)


def format_span(seconds: float) -> str:
    """Format a time in words: `42 s`, `3 min 5 s`, `2 h 10 min`."""
    whole = round(seconds)
    minutes, rest = divmod(whole, 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes} min" if minutes else f"{hours} h"
    if minutes:
        return f"{minutes} min {rest} s" if rest else f"{minutes} min"
    return f"{seconds:.1f} s" if 0 < seconds < 10 else f"{whole} s"
