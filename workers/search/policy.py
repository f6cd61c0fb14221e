"""The interface between a search and its policy: `next_steps`, and documents that name one.

A policy is a frozen dataclass of its parameters with a `name` (`policy_base.TreePolicy` says what it guarantees); it
joins `POLICIES` and nothing else changes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from operator import attrgetter
from typing import Any, TypeAlias

from warpsmith.kernels_db.spec.errors import SpecError
from warpsmith.kernels_db.spec.near_misses import one_of
from warpsmith.workers.search import fields
from warpsmith.workers.search.best_of_n import BestOfN
from warpsmith.workers.search.greedy import Greedy
from warpsmith.workers.search.idea_beam import IdeaBeam
from warpsmith.workers.search.policy_base import TreePolicy
from warpsmith.workers.search.prose_first import ProseFirst
from warpsmith.workers.search.puct import Puct
from warpsmith.workers.search.random_parent import RandomParent
from warpsmith.workers.search.survey import Survey
from warpsmith.workers.search.tree import Budget, NodeView, Spend, Step, Tree

Policy: TypeAlias = TreePolicy

POLICIES: dict[str, type[Policy]] = {
    policy.name: policy for policy in (IdeaBeam, BestOfN, Greedy, RandomParent, Puct, ProseFirst, Survey)
}
"""Every policy there is; the first is the default."""

_MARK = attrgetter("mark")


def next_steps(tree: Tree, policy: Policy, budget: Budget, spend: Spend) -> list[Step]:
    """Return the steps to open next for `tree`; empty while open steps have to end first.

    Pure: a call on an unchanged tree gives the same steps; `policy_base.TreePolicy` says what else every
    policy guarantees.
    """
    if "banned" in map(_MARK, tree.nodes):
        tree = replace(tree, nodes=[_hidden(node) if node.mark == "banned" else node for node in tree.nodes])
    return policy.steps(tree, budget, spend)


def _hidden(node: NodeView) -> NodeView:
    """Return a banned node as policies see it.

    It has ended without a verdict, as soon as no attempt is open for it.
    """
    return node if node.state in ("coding", "judging") else node._replace(state="closed")


def parse_policy(document: object) -> Policy:
    """Read a policy from its document, for example `{"name": "idea_beam", "beam": 2}`.

    Missing parameters keep their defaults.

    Raises SpecError naming the field: an unknown policy or parameter, a value of another type or outside its limits.
    """
    if not isinstance(document, Mapping):
        raise SpecError("policy", document, "an object such as {'name': 'idea_beam'}")
    name = document.get("name")
    if not isinstance(name, str) or name not in POLICIES:
        raise SpecError("policy.name", name, one_of(name, sorted(POLICIES)))
    parameters = {key: value for key, value in document.items() if key != "name"}
    policy = fields.read(POLICIES[name], parameters, "policy")
    policy.check()
    return policy


def policy_document(policy: Policy) -> dict[str, Any]:
    """Write `policy` as a document for `parse_policy`, with every parameter."""
    # They are numbers and switches; `asdict` would look into each for a dataclass and copy it.
    return {
        "name": policy.name,
        **{parameter: getattr(policy, parameter) for parameter in fields.limits_of(type(policy))},
    }
