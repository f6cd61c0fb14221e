"""The seam between a search and its policy: one pure function, and the documents that name a policy.

A policy is a frozen dataclass of its parameters with a `name` and a `steps` method; it joins `POLICIES` and nothing
else changes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, TypeAlias

from kernels_db.spec_errors import SpecError
from workers.search import fields
from workers.search.idea_beam import IdeaBeam
from workers.search.survey import Survey
from workers.search.tree import Budget, Spend, Step, Tree

Policy: TypeAlias = IdeaBeam | Survey
"""Every policy there is."""

POLICIES: dict[str, type[Policy]] = {IdeaBeam.name: IdeaBeam, Survey.name: Survey}


def next_steps(tree: Tree, policy: Policy, budget: Budget, spend: Spend) -> list[Step]:
    """What to open next for `tree`; empty while open steps have to end first.

    Pure: no clock, no I/O, no state, so a call on an unchanged tree gives the same steps. Guarantees of every policy:
    no step for a node whose attempt is open; no set of open steps may exceed the candidates and model calls of
    `budget`; whatever the outcomes, a `stop` comes after finitely many steps.
    """
    return policy.steps(tree, budget, spend)


def parse_policy(document: object) -> Policy:
    """A policy from its document, for example `{"name": "idea_beam", "beam": 2}`; what is missing keeps its default.

    Raises SpecError naming the field: an unknown policy or parameter, a value of another type or outside its limits.
    """
    if not isinstance(document, Mapping):
        raise SpecError("policy", document, "an object such as {'name': 'idea_beam'}")
    name = document.get("name")
    if not isinstance(name, str) or name not in POLICIES:
        raise SpecError("policy.name", name, f"one of {', '.join(sorted(POLICIES))}")
    parameters = {key: value for key, value in document.items() if key != "name"}
    policy = fields.read(POLICIES[name], parameters, "policy")
    policy.check()
    return policy


def policy_document(policy: Policy) -> dict[str, Any]:
    """The document of `policy`, every parameter spelled out; `parse_policy` reads it back."""
    return {"name": policy.name, **asdict(policy)}
