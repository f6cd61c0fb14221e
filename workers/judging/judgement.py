"""The outcome of judging one candidate."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Literal

from warpsmith.kernels_db.job.documents import Failure, Job, Level, Tier, Verdict, VerdictWord, tier_of
from warpsmith.workers.judge.reference.refusals import refusal

Unjudged = Literal["timeout", "died"]
"""Why there is no verdict: no answer in time; or the judge ended without one, by no fault that it found."""


@dataclass(frozen=True)
class Judgement:
    """A verdict on a candidate, or why there is none.

    Exactly one of `document` (the judge's whole answer: docs/judge.md, How to read a verdict) and `unjudged` is there.

    Attributes:
        op, target, level, language: what was judged; `language` is None for an op by itself.
        reason: one sentence for people, and for a model that may try again.
        document: the verdict as the judge wrote it, JSON throughout.
        unjudged: "timeout" or "died" where there is no verdict.
        notes: what a reader should know beside it: a device that this machine lacks, a file that was rewritten.
    """

    op: str
    target: str
    level: Level
    language: str | None
    reason: str
    document: Verdict | None = None
    unjudged: Unjudged | None = None
    notes: tuple[str, ...] = ()

    @property
    def verdict(self) -> VerdictWord | None:
        """The judge's word: accepted, rejected, quarantined or ambiguous; None where there is none."""
        return None if self.document is None else self.document["verdict"]

    @property
    def accepted(self) -> bool:
        """Whether the candidate was checked and timed, and stood; never after a profile or a compilation."""
        return self.verdict == "accepted" and self.level in ("screen", "verify")

    @property
    def admitted(self) -> bool:
        """Whether an op that was checked by itself can be judged: every wrong answer that must fail on it did.

        A missing device affects the times alone.
        """
        return self.document is not None and is_admitted(self.document)

    @property
    def speedup(self) -> float | None:
        """Speed-up over the fastest baseline, the geometric mean over the bench workloads.

        None unless accepted: a time of a candidate that is wrong, or too fast to be true, is no speed-up.
        """
        return self.document["score"] if self.document is not None and self.accepted else None

    @property
    def speedup_ci95(self) -> tuple[float, float] | None:
        """The 95 % interval of `speedup`."""
        interval = self.document["score_ci95"] if self.document is not None and self.accepted else None
        return None if interval is None else (interval[0], interval[1])

    @property
    def gate(self) -> str | None:
        """The gate at which the verdict was reached: gate, compile, screen ... (docs/judge.md)."""
        return None if self.document is None else self.document["gate"]

    @property
    def failure(self) -> Failure | None:
        """What was wrong, for programs: kind, message, and for a wrong value its place, expected and found."""
        return None if self.document is None else self.document["failure"]

    @property
    def tier(self) -> Tier | None:
        """The trust behind a verdict: gated, or sandbox for free Python, which no gate has read."""
        return None if self.language is None else tier_of(self.language)

    def to_dict(self) -> dict[str, Any]:
        """Return everything as a JSON document; `verdict` is the judge's whole answer, or None."""
        return {
            "op": self.op,
            "target": self.target,
            "level": self.level,
            "language": self.language,
            "accepted": self.accepted,
            "speedup": self.speedup,
            "reason": self.reason,
            "unjudged": self.unjudged,
            "notes": list(self.notes),
            "verdict": self.document,
        }

    def to_json(self) -> str:
        """Return `to_dict()` as one line of JSON."""
        return json.dumps(self.to_dict(), allow_nan=False)


def is_admitted(verdict: Verdict) -> bool:
    """Check whether every wrong answer that must fail on an op did."""
    examined = verdict["verdict"] in ("accepted", "ambiguous") and "admission" in verdict
    return examined and refusal(verdict["admission"]) is None


def judgement(job: Job, verdict: Verdict, notes: tuple[str, ...] = ()) -> Judgement:
    """Make a judgement of a job's verdict."""
    return Judgement(*_what(job), verdict["reason"], document=verdict, notes=notes)


def no_verdict(job: Job, why: Unjudged, reason: str, notes: tuple[str, ...] = ()) -> Judgement:
    """Make a judgement of a job that got no verdict."""
    return Judgement(*_what(job), reason, unjudged=why, notes=notes)


def _what(job: Job) -> tuple[str, str, Level, str | None]:
    candidate = job["candidate"]
    return job["op"]["name"], job["target"], job["level"], None if candidate is None else candidate["language"]
