"""Decisions of a campaign, pure: which regions are searched, with how much, and which kernels stay in the model."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from warpsmith.service.documents.campaigns import (
    ALL,
    MOST_PLACES,
    CampaignProfile,
    CampaignRegion,
    CampaignVariant,
    KernelGain,
)
from warpsmith.service.documents.figures import format_ratio
from warpsmith.workers.search.budget import COUNTS

LONGEST = 1000
"""Characters of a text that is stored."""


def read_profile(found: Mapping[str, Any]) -> CampaignProfile:
    """Read the times before from the document of `warpsmith profile`."""
    return CampaignProfile(
        device=found["device"],
        graphs=found["graphs"],
        model_us=found["model_us"],
        compiled_us=found["compiled_us"],
        saving_us=found["total"]["saving_us"],
    )


def read_region(opportunity: Mapping[str, Any]) -> CampaignRegion:
    """Read a region from its row of `warpsmith profile`, with the reason where it has no spec."""
    count, counted = len(opportunity["places"]), opportunity["counted"]
    reason = None
    if opportunity["file"] is None:
        reason = f"no spec: {opportunity['reason'] or 'what it needs at least is not known'}"[:LONGEST]
    return CampaignRegion(
        name=opportunity["name"],
        operators=opportunity["operators"][:LONGEST],
        places=opportunity["places"][:MOST_PLACES],
        count=count,
        time_us=opportunity["time_us"],
        share=opportunity["share"],
        limit_us=opportunity["limit_us"],
        limit_by=opportunity["limit_by"],
        joins=opportunity["joins"],
        counted=counted,
        saving_us=round(opportunity["saving_us"] / count * counted, 3),
        reason=reason,
    )


def choose_regions(
    regions: Sequence[CampaignRegion], top: int, budget: Mapping[str, int | float]
) -> list[CampaignRegion]:
    """Return the regions with the budgets of the `top` that save most, or the reason why one is not searched.

    Only regions of the set without overlap are searched, and no more than there are candidates, calls or tokens. The
    weight of a region is what a kernel at its limit saves: its share of the model's time times what is to be gained.
    """
    most = min([top, *(int(budget[name]) for name in COUNTS if name in budget)])
    open_ones = sorted((one for one in regions if one.reason is None), key=lambda one: -one.saving_us)
    chosen = [one for one in open_ones if one.saving_us > 0][:most]
    budgets = divide_budget(budget, [one.saving_us for one in chosen])
    parts = {one.name: part for one, part in zip(chosen, budgets, strict=True)}
    return [
        one.model_copy(update={"budget": parts[one.name]} if one.name in parts else {"reason": _why_not(one, most)})
        for one in regions
    ]


def _why_not(region: CampaignRegion, most: int) -> str:
    if region.reason is not None:
        return region.reason
    if region.saving_us > 0:
        return f"it is not among the {most} that save most"
    if region.limit_us is not None and region.time_us > region.limit_us:
        return "it overlaps regions that save more"
    return "it takes no longer than the limit"


def divide_budget(budget: Mapping[str, int | float], weights: Sequence[float]) -> list[dict[str, int | float]]:
    """Divide a budget by weights above 0: counts to whole numbers of at least 1 that add up to the limit.

    Running time is not divided: the searches run side by side.
    """
    parts: list[dict[str, int | float]] = [{} for _ in weights]
    whole = sum(weights)
    for name, limit in budget.items():
        shares: Sequence[int | float]
        if name == "wall_clock_s":
            shares = [limit] * len(weights)
        elif name in COUNTS:
            shares = _apportion(int(limit), weights)
        else:
            shares = [limit * weight / whole for weight in weights]
        for part, share in zip(parts, shares, strict=True):
            part[name] = share
    return parts


def _apportion(total: int, weights: Sequence[float]) -> list[int]:
    """Divide `total`, at least one for each weight, by the method of largest remainders."""
    spare, whole = total - len(weights), sum(weights)
    exact = [spare * weight / whole for weight in weights]
    found = [1 + math.floor(share) for share in exact]
    order = sorted(range(len(weights)), key=lambda at: (math.floor(exact[at]) - exact[at], at))
    for at in order[: total - sum(found)]:
        found[at] += 1
    return found


def read_variants(found: Mapping[str, Any]) -> list[CampaignVariant]:
    """Read the variants of the model from the document of `warpsmith ablate`."""
    return [CampaignVariant(**{name: row[name] for name in CampaignVariant.model_fields}) for row in found["variants"]]


def assess(region: CampaignRegion, module: str, found: Mapping[str, Any]) -> CampaignRegion:
    """Return the region with what its kernel brought in the model; a reason where the kernel does not stay.

    module: the name of the kernel's package; found: the document of `warpsmith ablate`. A kernel stays where the
    model's results agree, and the model is surely faster with it than without it, beside the other kernels.
    """
    mine = [place for place in found["places"] if place["kernel"] == module]
    served = sum(place["replaced"] for place in mine)
    brings = next((one for one in found["brings"] if one["kernel"] == module), None)
    if served == 0 or brings is None:
        why = found["unusable"].get(module) or next((place["reason"] for place in mine if place["reason"]), "no place")
        return region.model_copy(update={"served": 0, "kept": False, "reason": f"no place: {why}"[:LONGEST]})
    alone, beside = (_gain(brings[name]) for name in ("alone", "beside"))
    rows = {row["variant"]: row for row in found["variants"]}
    agrees = rows.get(f"only {module}", rows[ALL])["agrees"]
    reason = None
    if not agrees:
        reason = "the model's results do not agree with it"
    elif beside.ci95 is None:
        reason = "too few rounds were timed to tell what it brings"
    elif beside.ci95[0] <= 1:
        reason = f"the model is not surely faster with it: {format_ratio(beside.speedup, beside.ci95)}"
    return region.model_copy(
        update={"served": served, "alone": alone, "beside": beside, "kept": reason is None, "reason": reason}
    )


def drop_least(regions: Sequence[CampaignRegion]) -> list[CampaignRegion]:
    """Return the regions without the kernel that brings least, where all of them together give other results."""
    brought = {one.name: one.beside.speedup for one in regions if one.kept and one.beside is not None}
    least = min(brought, key=brought.__getitem__, default=None)
    reason = "the model's results do not agree with it beside the others"
    return [one.model_copy(update={"kept": False, "reason": reason}) if one.name == least else one for one in regions]


def _gain(one: Mapping[str, Any]) -> KernelGain:
    return KernelGain(speedup=one["speedup"], ci95=one["ci95"], saved_us=one["saved_us"])
