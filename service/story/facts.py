"""Plain records: the facts of a story, and its sections."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from warpsmith.kernels_db.job.attack_summary import AttackSummary
from warpsmith.service.documents.searches import SearchDocument
from warpsmith.workers.search.tree import ENDED


@dataclass(frozen=True)
class StoryNode:
    """A node without its code.

    `parent` is a `seq`; `failure` is the kind of its last verdict's failure; `coded` says whether it ever had code.
    """

    seq: int
    parent: int | None
    round: int
    technique: str | None
    title: str | None
    mechanism: str | None
    state: str
    reason: str | None = None
    verdict: str | None = None
    gate: str | None = None
    failure: str | None = None
    score: float | None = None
    ci95: tuple[float, float] | None = None
    repairs: int = 0
    origin: str = "model"
    mark: str | None = None
    coded: bool = True

    @property
    def right(self) -> bool:
        """Whether the judge accepted it."""
        return self.state == "judged" and self.verdict == "accepted"

    @property
    def surely_faster(self) -> bool:
        """Whether it is faster than PyTorch's fastest beyond the noise."""
        return self.right and self.ci95 is not None and self.ci95[0] > 1.0


@dataclass(frozen=True)
class Answers:
    """Calls that one model answered, with their cost in US dollars; `unpriced` have none."""

    provider: str
    model: str | None
    calls: int
    unpriced: int
    cost_usd: float = 0.0


@dataclass(frozen=True)
class Steer:
    """An action of a person.

    `kind` is the event's type, `after_s` its seconds from the search's creation. `by` is the name of an API key, where
    keys are required; `text` the idea's title or the new budget.
    """

    kind: str
    after_s: float
    seq: int | None = None
    by: str | None = None
    text: str | None = None


@dataclass(frozen=True)
class TryCount:
    """The tries of a search: how many, for how many nodes, how many were right, what they held of the device."""

    tries: int = 0
    nodes: int = 0
    right: int = 0
    device_s: float = 0.0


@dataclass(frozen=True)
class StoryFacts:
    """All facts of a story.

    `nodes` by rising `seq`, the root first. Times in seconds; `judge_s` is the judge's time, `device_s` the part of it
    in which it held the device. `branched_from`: search and `seq`; `branches`: the searches that were branched from
    this one. `attack`: the search for a counterexample to the best candidate, where it was verified with one.
    """

    search: SearchDocument
    nodes: Sequence[StoryNode]
    answers: Sequence[Answers] = ()
    judge_s: float = 0.0
    device_s: float = 0.0
    steers: Sequence[Steer] = ()
    branched_from: tuple[str, int] | None = None
    branches: Sequence[str] = ()
    attack: AttackSummary | None = None
    tries: TryCount = TryCount()

    @property
    def ended(self) -> bool:
        """Whether the search has ended for good."""
        return self.search.state in ENDED

    @property
    def candidates(self) -> list[StoryNode]:
        """Every node but the root."""
        return [node for node in self.nodes if node.seq > 0]

    @property
    def lineage(self) -> list[StoryNode]:
        """The nodes from the first idea to the best candidate; empty where there is none."""
        if self.search.best is None:
            return []
        by_seq = {node.seq: node for node in self.nodes}
        chain: list[StoryNode] = []
        node = by_seq.get(self.search.best.seq)
        while node is not None and node.seq > 0:
            chain.append(node)
            parent = -1 if node.parent is None else node.parent
            node = by_seq.get(parent) if parent < node.seq else None
        return chain[::-1]


@dataclass(frozen=True)
class Section:
    """A heading, a paragraph and items below it."""

    heading: str
    paragraph: str
    items: tuple[str, ...] = ()
