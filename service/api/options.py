"""Options of a submission: targets, languages, policies, parameters, limits, models."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Iterator
from dataclasses import fields
from typing import Any, Literal

from pydantic import BaseModel, Field
from sqlalchemy import select
from sqlalchemy.orm import Session

from warpsmith.kernels_db.job.languages import of_device
from warpsmith.kernels_db.spec.op import Target
from warpsmith.kernels_db.store.tables import WorkerRow
from warpsmith.service.settings import ServiceSettings
from warpsmith.service.views.workers import serves
from warpsmith.workers.judging import machine
from warpsmith.workers.llm.providers.endpoints import OPENAI_BASE_URL, address, has_key
from warpsmith.workers.llm.reply.techniques import TECHNIQUES
from warpsmith.workers.search.policy import POLICIES, Policy
from warpsmith.workers.search.tree import Budget
from warpsmith.workers.steps.seeding import MOST_SEEDS


class TargetOption(BaseModel):
    """A target of searches."""

    target: str
    device: str
    languages: list[str] = Field(description="The first is the default")
    live_workers: int = Field(description="Judges that serve it now; a search for a target without any waits")


class ParameterOption(BaseModel):
    """A parameter of a policy."""

    name: str
    type: Literal["integer", "number", "boolean"]
    default: int | float | bool
    minimum: float | None = None
    maximum: float | None = None
    above: bool = Field(False, description="Whether the minimum itself is left out")


class PolicyOption(BaseModel):
    """A policy that a search may follow."""

    name: str
    summary: str
    parameters: list[ParameterOption]


class ProviderOption(BaseModel):
    """A provider of answers to a search's model requests."""

    name: Literal["openai", "replay", "agent"]
    ready: bool = Field(description="Whether a search may begin with it as this server is set up")
    detail: str


class OptionsDocument(BaseModel):
    """Options of a submission to this server."""

    targets: list[TargetOption]
    policies: list[PolicyOption] = Field(description="The first is the default")
    limits: list[str] = Field(description="Names of a budget's limits")
    providers: list[ProviderOption]
    default_model: str = Field(description="The model that is asked where a search names none")
    most_seeds: int
    techniques: list[str] = Field(description="Names of techniques, for ideas")


def collect_options(session: Session, settings: ServiceSettings, alive_since: float) -> OptionsDocument:
    """Collect the options of a submission; workers count that reported in after `alive_since`."""
    return OptionsDocument(
        targets=list(_list_targets(session, alive_since)),
        policies=[_describe_policy(policy) for policy in POLICIES.values()],
        limits=[field.name for field in fields(Budget)],
        providers=list_providers(settings),
        default_model=settings.openai_model,
        most_seeds=MOST_SEEDS,
        techniques=list(TECHNIQUES),
    )


def _list_targets(session: Session, alive_since: float) -> Iterator[TargetOption]:
    """Yield the targets of live judges, and this machine's own processor."""
    rows = session.scalars(
        select(WorkerRow.target).where(WorkerRow.role == "judge", WorkerRow.target.is_not(None), *serves(alive_since))
    ).all()
    for target in sorted({machine.cpu_target(), *filter(None, rows)}, key=lambda name: (-rows.count(name), name)):
        device = Target.parse(target).device
        yield TargetOption(
            target=target, device=device, languages=list(of_device(device, gated=True)), live_workers=rows.count(target)
        )


def _describe_policy(policy: type[Policy]) -> PolicyOption:
    summary = (sys.modules[policy.__module__].__doc__ or "").partition("\n\n")[0]
    return PolicyOption(
        name=policy.name,
        summary=" ".join(summary.split()),
        parameters=[_describe_parameter(field) for field in fields(policy)],
    )


def _describe_parameter(field: dataclasses.Field[Any]) -> ParameterOption:
    limits = field.metadata
    kinds: dict[type, Literal["integer", "number", "boolean"]] = {int: "integer", float: "number", bool: "boolean"}
    return ParameterOption(
        name=field.name,
        type=kinds[limits["kind"]],
        default=field.default,
        minimum=limits.get("least"),
        maximum=limits.get("most"),
        above=limits.get("above", False),
    )


def list_providers(settings: ServiceSettings) -> list[ProviderOption]:
    """List who may answer the requests of a search, and whether each can."""
    url = address(None, settings)
    ready = url != OPENAI_BASE_URL or has_key(url, settings) or settings.openai_key_at_workers
    without = "no key of OpenAI is set (WARPSMITH_OPENAI_API_KEY); an endpoint that needs none can be named"
    return [
        ProviderOption(name="openai", ready=ready, detail=f"asks {url}" if ready else without),
        ProviderOption(
            name="agent", ready=True, detail="requests wait as asks until a person or an agent answers them"
        ),
        ProviderOption(name="replay", ready=True, detail="replies come from a stored pool"),
    ]
