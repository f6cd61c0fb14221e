"""Documents of bundles and of merging them."""

from __future__ import annotations

from collections import Counter
from typing import Literal

from pydantic import BaseModel, Field

from warpsmith.service.documents.field_error import FieldError


class BundleDocument(BaseModel):
    """Judge jobs for a host that this service cannot reach."""

    format: Literal["warpsmith-bundle"]
    version: int
    id: str
    search_id: str
    op: str
    target: str
    created_at: float
    count: int = Field(description="Jobs in the bundle")
    left: int = Field(description="What waits for a judge and found no room; another bundle can take it")
    jobs: list[str] = Field(description="The lines of jobs.jsonl, each a signed job as JSON, to be kept as they are")
    verifications: list[str] = Field(
        [],
        description="The lines of verifications.jsonl: the full verification of each screened candidate, which the "
        "host does of its best",
    )


class BundleSummary(BaseModel):
    """A bundle that was made and not dropped."""

    id: str
    search_id: str
    op_name: str
    target: str
    created_at: float
    jobs: int = Field(description="Jobs in the bundle")
    merged: int = Field(description="Of these, jobs whose verdicts have come")
    out: int = Field(
        description="Of these, jobs whose verdicts are still wanted: a ban or the end of a search takes jobs back"
    )
    unjudged: int = Field(description="Of those that are out, jobs that their host could not judge")


class UnjudgedJob(BaseModel):
    """A job of a bundle that its host could not judge."""

    nonce: str
    attempt_id: str
    node_id: str
    seq: int = Field(description="The node's number in its search")
    step: Literal["judge", "verify"]
    reason: str = Field(
        description="refused, timeout or died, and the message of the judge there: it could not read the job, had no "
        "verdict in time, or crashed"
    )


class DroppedBundle(BaseModel):
    """Outcome of dropping a bundle, or its unjudged jobs."""

    id: str
    search_id: str
    returned: int = Field(description="Steps, profiles and tries that returned to the queue")
    failed: int = Field(description="Steps that failed, since their host could not judge them")
    merged: int = Field(description="Jobs whose verdicts had come; they stay")


class MergedLine(BaseModel):
    """Outcome of one line of verdicts.jsonl or unjudged.jsonl."""

    line: int = Field(description="Its number in the body, from 1")
    nonce: str | None = Field(description="The job's, where that could be read")
    bundle_id: str | None = Field(None, description="The job's bundle, where that could be read")
    outcome: Literal["merged", "unjudged", "already", "late", "refused"] = Field(
        description="merged: stored now. unjudged: its host could not judge the job, and `detail` says why; a step "
        "stays out, a profile or try ends. already: this very verdict was stored before, or the job has one. late: its "
        "search ended, its step was given to another judge, or it profiled code that its node no longer has. refused: "
        "`error` says why, and nothing of the line was stored"
    )
    search_id: str | None = None
    of: Literal["step", "profile", "try"] | None = Field(
        None, description="What the job is of. A profile or try that was not judged has ended; a step stays out"
    )
    detail: str | None = Field(None, description="Of one that is unjudged, came already or late: since when, or why")
    error: FieldError | None = None


class MergeReport(BaseModel):
    """Outcomes of the lines that came back."""

    merged: int
    unjudged: int
    already: int
    late: int
    refused: int
    lines: list[MergedLine]

    @classmethod
    def of(cls, lines: list[MergedLine]) -> MergeReport:
        """Make the report of `lines`, with counts by outcome."""
        counts = Counter(line.outcome for line in lines)
        return cls(
            merged=counts["merged"],
            unjudged=counts["unjudged"],
            already=counts["already"],
            late=counts["late"],
            refused=counts["refused"],
            lines=lines,
        )
