"""Documents of searches of one op beside each other."""

from __future__ import annotations

from pydantic import BaseModel, Field

from warpsmith.service.documents.searches import SearchSummary


class CurvePoint(BaseModel):
    """The best so far after a verdict that changed it, or when it was last looked at (`node_id` null)."""

    candidates: int = Field(description="Candidates judged by then")
    cost_usd: float | None = Field(description="Spent by then; null where the price of some call is not known")
    elapsed_s: float = Field(description="Since the search was created, pauses included")
    score: float = Field(description="Speed-up over the fastest baseline")
    verified: bool = Field(description="Whether the score is of the full verification, not of a screening")
    node_id: str | None
    seq: int | None


class TechniqueDocument(BaseModel):
    """What a search's ideas of one technique led to."""

    technique: str
    candidates: int = Field(description="Candidates with a verdict")
    accepted: int
    improved: int = Field(description="Accepted ones that were faster than what they were built on")
    best_score: float | None = Field(description="Speed-up over the fastest baseline")
    median_gain: float | None = Field(
        description="Median over the accepted of their speed-up over what they were built on: the parent, or the "
        "fastest baseline below the root"
    )
    gain_range: list[float] | None = Field(description="The least and the greatest of these speed-ups")
    tokens: int = Field(description="Of writing and repairing their code; those of ideas are not split by technique")
    cost_usd: float | None = Field(description="Of the same calls; null where the price of one is not known")
    judge_s: float = Field(description="Seconds that judge steps of these candidates took")


class ComparedSearch(BaseModel):
    """One of the searches that are compared."""

    search: SearchSummary
    curve: list[CurvePoint]
    techniques: list[TechniqueDocument] = Field(description="By the number of candidates, the most first")


class Fact(BaseModel):
    """A setting or a circumstance, with its value in each search in their order."""

    name: str = Field(description="Such as `policy.beam`, `budget.candidates`, `op revision`, `device`")
    values: list[str | None] = Field(description="As text; null where there is none")
    differs: bool = Field(
        description="Whether two searches are known to differ; a machine that is not known yet differs from none"
    )


class ComparisonDocument(BaseModel):
    """Searches of one op beside each other, in the order in which they were named."""

    op_name: str
    searches: list[ComparedSearch]
    facts: list[Fact] = Field(description="What differs comes first")
    warnings: list[str] = Field(description="Why speed-ups may not compare, such as another device")
