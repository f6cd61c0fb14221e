"""Documents of teams' quotas."""

from __future__ import annotations

from pydantic import BaseModel, Field


class QuotaDocument(BaseModel):
    """What a team has used of one quota."""

    team: str
    quota: str = Field(description="open_searches, candidates_a_day, cost_usd_a_day or device_seconds_a_day")
    used: float
    limit: float | None = Field(description="null: there is none")
    resets_at: float | None = Field(description="When the day ends (UTC); null for what a day does not reset")
