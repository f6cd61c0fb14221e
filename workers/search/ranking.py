"""The ranking of nodes: which are under way, which compete, which of them lead."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from operator import attrgetter

from warpsmith.workers.search.tree import NodeView

CREDIBLE_FRACTION = 1.1
"""Largest credible share of the physical limit.

Nothing is faster than the limit: a share well above 1 says that the limit was measured wrong, and ends nothing.
"""

_SEQ = attrgetter("seq")
_SCORE = attrgetter("score")


def is_open(node: NodeView) -> bool:
    """Check whether an attempt is under way for `node`."""
    return node.state in ("coding", "judging") or node.ideation == "open" or node.verification == "open"


def score(node: NodeView) -> float:
    """Return the node's speed-up over the fastest baseline; 0 where there is none."""
    return node.score if node.score is not None else 0.0


def is_contender(node: NodeView) -> bool:
    """Check whether a node is accepted, has a score and has not failed in verification."""
    accepted = node.state == "judged" and node.verdict == "accepted" and node.score is not None
    return accepted and node.verification != "failed"


def ranked(nodes: Iterable[NodeView]) -> list[NodeView]:
    """Return the contenders of `nodes`, best first; of equal scores the older.

    As `is_contender` and a key of both would have it, in a quarter of the time on a large tree.
    """
    found = [
        node
        for node in nodes
        if node.score is not None
        and node.state == "judged"
        and node.verdict == "accepted"
        and node.verification != "failed"
    ]
    found.sort(key=_SEQ)
    found.sort(key=_SCORE, reverse=True)  # which keeps the order of equals
    return found


def barren(nodes: Sequence[NodeView]) -> set[str | None]:
    """Return the ids of the `nodes` whose latest request for ideas brought nothing to judge.

    The request is over, and brought no reply, or repetitions alone.
    """
    bore = {(node.parent_id, node.round) for node in nodes if node.state != "closed" and node.joins is None}
    return {
        node.id for node in nodes if node.ideated and node.ideation == "done" and (node.id, node.ideated) not in bore
    }


def pinned(nodes: Iterable[NodeView]) -> list[NodeView]:
    """Return the accepted `nodes` that a person wants built on, best first."""
    wanted = (node for node in nodes if node.mark == "pinned" and (node.state, node.verdict) == ("judged", "accepted"))
    return sorted(wanted, key=lambda node: (-score(node), node.seq))


def champion(contenders: list[NodeView]) -> NodeView | None:
    """Return the best verified contender."""
    return next((node for node in contenders if node.verification == "passed"), None)


def is_known(contenders: list[NodeView]) -> bool:
    """Check whether the best contender ties with the champion, which is verified already.

    A full verification would not tell them apart, and the best of many short timings is flattered by luck.
    """
    verified = champion(contenders)
    return verified is not None and ties(contenders[0], verified)


def ties(one: NodeView, other: NodeView) -> bool:
    """Check whether each score lies within the other's noise interval: neither is faster."""
    return _within(one, other) and _within(other, one)


def _within(node: NodeView, interval: NodeView) -> bool:
    if interval.ci_low is None or interval.ci_high is None:
        return False
    return interval.ci_low <= score(node) <= interval.ci_high


def at_limit(contenders: list[NodeView], fraction: float) -> str | None:
    """Say in words that the champion reaches `fraction` of the physical limit; else None."""
    verified = champion(contenders)
    reached = verified.limit_fraction if verified is not None else None
    if reached is None or not fraction <= reached <= CREDIBLE_FRACTION:
        return None
    return f"the champion reaches {reached:.0%} of the physical limit"
