"""Documents of teams' quotas."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from pydantic import BaseModel, Field

LABELS: Mapping[str, str] = MappingProxyType(
    {
        "open_searches": "open searches",
        "candidates_a_day": "candidates today",
        "cost_usd_a_day": "US dollars for models today",
        "device_seconds_a_day": "device seconds today",
    }
)


class QuotaDocument(BaseModel):
    """What a team has used of one quota."""

    team: str
    quota: str = Field(description="open_searches, candidates_a_day, cost_usd_a_day or device_seconds_a_day")
    used: float
    limit: float | None = Field(description="null: there is none")
    resets_at: float | None = Field(description="When the day ends (UTC); null for what a day does not reset")


def describe_usage(quota: str, used: float, limit: float | None) -> str:
    """Describe what is used of a quota: `3 of 10 open searches`."""
    return f"{round(used, 2):g}{'' if limit is None else f' of {limit:g}'} {LABELS[quota]}"
