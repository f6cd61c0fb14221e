"""The part of a story on failures: nodes by the cause of their failure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from warpsmith.service.documents.escaping import mark_foreign, quote_foreign
from warpsmith.service.story.facts import Section, StoryFacts, StoryNode
from warpsmith.service.story.words import count, join_words, name_node

LONGEST_REASON = 120
KINDS_SHOWN = 3

_CAUSES = {
    "wrong": ("gave a wrong result", "gave wrong results"),
    "compile": ("did not compile", "did not compile"),
    "gate": (
        "was refused before it ran, for what it reaches for",
        "were refused before they ran, for what they reach for",
    ),
    "slower": ("was right, but not surely faster than PyTorch", "were right, but not surely faster than PyTorch"),
    "duplicate": ("repeated what had been tried", "repeated what had been tried"),
    "quarantined": ("was too fast to be true and stays quarantined", "were too fast to be true and stay quarantined"),
    "ambiguous": ("could not be judged here", "could not be judged here"),
    "unanswered": ("got no usable answer from the model", "got no usable answer from the model"),
    "unfinished": ("was cut short by the search's end", "were cut short by the search's end"),
    "banned": ("was banned before it was judged", "were banned before they were judged"),
    "other": ("could not be carried through", "could not be carried through"),
}
"""Words for a cause, of one node and of several; their order decides among equals."""

CAUSES_WITH_REASON = frozenset({"compile", "gate", "ambiguous", "other", "wrong", "unanswered"})


def tell_failures(facts: StoryFacts) -> Section | None:
    """List the nodes without success by cause, the commonest first."""
    groups: dict[str, list[StoryNode]] = {cause: [] for cause in _CAUSES}
    for node in facts.candidates:
        cause = find_cause(node, ended=facts.ended)
        if cause is not None:
            groups[cause].append(node)
    found = [(cause, nodes) for cause, nodes in groups.items() if nodes]
    if not found:
        return None
    found.sort(key=lambda pair: -len(pair[1]))
    lost = sum(len(nodes) for _, nodes in found)
    paragraph = f"{lost} of {count(len(facts.candidates), 'node')} brought nothing:"
    return Section("What failed, and why", paragraph, tuple(_describe_cause(cause, nodes) for cause, nodes in found))


def find_cause(node: StoryNode, *, ended: bool) -> str | None:  # noqa: PLR0911 - one line for each fate
    """Find why the node had no success; None where it had, or still may."""
    reason = node.reason or ""
    if node.state == "closed":
        if "duplicate of" in reason or reason.startswith("the same idea"):
            return "duplicate"
        if reason == "the search ended first":
            return "unfinished"
        if reason == "banned before its code was written":
            return "banned"
        return "unanswered" if "reply" in reason else "other"
    if node.state != "judged":
        if node.mark == "banned":
            return "banned"
        return "unfinished" if ended else None
    if node.verdict == "rejected":
        return node.gate if node.gate in ("compile", "gate") else "wrong"
    if node.verdict in ("quarantined", "ambiguous"):
        return node.verdict
    return None if node.surely_faster else "slower"


def _describe_cause(cause: str, nodes: Sequence[StoryNode]) -> str:
    one, several = _CAUSES[cause]
    text = f"{len(nodes)} {one if len(nodes) == 1 else several}"
    if cause == "wrong":
        kinds = Counter((node.failure or "unknown").replace("_", " ") for node in nodes)
        text += ": " + join_words([f"{mark_foreign(kind, 40)} ({number})" for kind, number in _list_commonest(kinds)])
    if cause == "slower":
        reached = [node.score for node in nodes if node.score is not None]
        text += f", {max(reached):.2f}x at best" if reached else ""
    if cause in CAUSES_WITH_REASON:
        example = _find_example(cause, nodes)
        if example is not None:
            text += f"; {name_node(example)}: {quote_foreign(example.reason, LONGEST_REASON)}"
    return text


def _list_commonest(kinds: Counter[str]) -> list[tuple[str, int]]:
    ordered = sorted(kinds.items(), key=lambda item: (-item[1], item[0]))
    rest = sum(number for _, number in ordered[KINDS_SHOWN:])
    return ordered[:KINDS_SHOWN] + ([("something else", rest)] if rest else [])


def _find_example(cause: str, nodes: Sequence[StoryNode]) -> StoryNode | None:
    """Find the first node with the commonest kind of failure, or reason."""
    given = [node for node in nodes if node.reason]
    if not given:
        return None
    kinds = [(node.failure if cause == "wrong" else node.reason) for node in given]
    commonest = Counter(kinds).most_common(1)[0][0]
    return given[kinds.index(commonest)]
