"""The tree as a policy sees it: plain values, no database, no clock."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from operator import attrgetter
from typing import Literal, NamedTuple

NodeState = Literal["planned", "coding", "coded", "judging", "judged", "closed"]
"""State of a node.

planned: an idea without code; coding, judging: an attempt is open; coded: code without verdict; judged: has a
verdict; closed: ends without a verdict (no readable reply, no recorded reply, a duplicate, gave up).
"""


ENDED = ("finished", "failed", "cancelled")
"""States that a search never leaves."""


class NodeView(NamedTuple):
    """One row of the tree.

    `score` is the geometric mean over bench workloads of the speed-up over the fastest objective baseline.
    """

    id: str
    seq: int
    parent_id: str | None
    round: int
    technique: str | None
    state: NodeState
    repairs: int
    verdict: str | None
    gate: str | None
    score: float | None
    ci_low: float | None
    ci_high: float | None
    limit_fraction: float | None
    ideation: Literal["none", "open", "done"]
    verification: Literal["none", "open", "passed", "failed"]
    ideated: int = 0  # the last round for which ideas were asked for on this node, answered or not; 0: never
    mark: Literal["pinned", "banned"] | None = None  # by a person: always a parent of the next round, or never again
    origin: str = "model"  # source: model, person, stored (a kernel of an earlier search), branch, joined
    speedups: str | None = None  # by bench workload, as `joining.write_speedups` has them
    joins: str | None = None  # the numbers of the candidates that it was put together from, as "3,7"


_ROUND = attrgetter("round")
_IDEATED = attrgetter("ideated")


def planned(node_id: str, seq: int, parent_id: str | None, round_: int, technique: str | None) -> NodeView:
    """Make a node of which nothing is known but its place."""
    return NodeView(
        id=node_id,
        seq=seq,
        parent_id=parent_id,
        round=round_,
        technique=technique,
        state="planned",
        repairs=0,
        verdict=None,
        gate=None,
        score=None,
        ci_low=None,
        ci_high=None,
        limit_fraction=None,
        ideation="none",
        verification="none",
    )


@dataclass(frozen=True)
class Tree:
    """All nodes of a search by rising `seq`.

    `nodes[0]` is the root, whose verdict holds the baselines. `baselines_away`: they travel in a bundle and are not
    measured yet, so that the first round is asked for without them.
    """

    nodes: list[NodeView]
    baselines_away: bool = False

    @cached_property
    def under_way(self) -> list[NodeView]:
        """The nodes that have an open attempt, few of a large tree."""
        return [
            node
            for node in self.nodes
            if node.state in ("coding", "judging") or node.ideation == "open" or node.verification == "open"
        ]

    @cached_property
    def rounds(self) -> int:
        """The latest round that has nodes or was asked for."""
        latest: int = max(*map(_ROUND, self.nodes), *map(_IDEATED, self.nodes))
        return latest


@dataclass(frozen=True)
class Budget:
    """Limits of a search; None means no limit.

    Zero and below are refused where the search is created. `gpu_seconds` is the time for which the judge held the
    device (a GPU, or the CPU's cores) for candidates of this search. `try_seconds` is that for tries (`steps.trying`):
    it ends no search, and None means its default. `sweep_seconds` is the part of `gpu_seconds` that sweeps held:
    it ends none either, and candidates are then judged with the numbers in their files.
    """

    candidates: int | None = None
    model_calls: int | None = None
    tokens: int | None = None
    cost_usd: float | None = None
    wall_clock_s: float | None = None
    gpu_seconds: float | None = None
    try_seconds: float | None = None
    sweep_seconds: float | None = None


@dataclass(frozen=True)
class Spend:
    """The use of each limit by a search."""

    candidates: int = 0
    model_calls: int = 0
    tokens: int = 0
    cost_usd: float = 0.0
    wall_clock_s: float = 0.0
    gpu_seconds: float = 0.0
    try_seconds: float = 0.0
    sweep_seconds: float = 0.0


@dataclass(frozen=True)
class Step:
    """A step to do next.

    ideate: ask for `ideas` ideas on `node_id` for round `ordinal`, each to be coded `codes` times (`params`: ideas,
        codes, round; `technique_not_in`, comma-separated, on a restart; `reflect`, 1 where the model is to say first
        how it reads the results). Opening it sets the node's `ideated` to `ordinal`, with any outcome: a round whose
        requests all came to nothing has been played.
    plant: make `codes` planned nodes without an idea under `node_id` for round `ordinal` (`params`: codes, round). It
        takes no attempt: it is done at once, and the policy is asked again.
    join: put one candidate together from the `parts` (as a node's `joins`) under `node_id`, the first of them, in round
        `ordinal`. It takes no attempt and no call to a model, and is done at once as well.
    code: write code for the planned `node_id` (`ordinal` 0), or repair its rejected candidate (`ordinal` = repair
        number, from 1).
    judge: screen `node_id`'s candidate (`ordinal` = its repairs so far); on the root: measure the baselines.
    verify: full verification of `node_id` (`ordinal` = its repairs so far).
    stop: end the search, with the reason. A list with `stop` holds nothing else.

    ideate and code carry `calls` in `params`: how many model calls, re-asks included, the step may make within the
    budget.
    """

    kind: Literal["ideate", "code", "judge", "verify", "plant", "join", "stop"]
    node_id: str | None = None
    ordinal: int = 0
    params: dict[str, int | str | None] = field(default_factory=dict)
    reason: str | None = None
