"""Bundles: judge jobs for a host that the service cannot reach, and their verdicts.

    bundle.json           BundleHeader
    jobs.jsonl            one SignedJob a line, written by the service
    verifications.jsonl   one SignedVerification a line: jobs that are judged where their candidate comes out best
    verdicts.jsonl        one SignedVerdict a line, written by the judge there
    unjudged.jsonl        one SignedUnjudged a line: the jobs on which its last run has no verdict, and why

A ticket says which job it is; the service signs the ticket, and the ticket holds the job's digest, so the signature
covers the job. Standard library only: the other host has no more.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any, Literal, NotRequired, TypedDict

from warpsmith.kernels_db.job.documents import Job, Verdict

FORMAT = "warpsmith-bundle"
VERSION = 1
HEADER, JOBS, VERDICTS, UNJUDGED = "bundle.json", "jobs.jsonl", "verdicts.jsonl", "unjudged.jsonl"
VERIFICATIONS = "verifications.jsonl"
LONGEST_REASON = 4000
"""Characters of `Unjudged.reason`."""


class BundleHeader(TypedDict):
    """A bundle's header. `created_at`: epoch seconds; `count`: its jobs."""

    format: Literal["warpsmith-bundle"]
    version: int
    id: str
    search_id: str
    op: str
    target: str
    created_at: float
    count: int


class Ticket(TypedDict):
    """The identity of a job in a bundle.

    `nonce` is its own and its verdict's id; `attempt_id` is the id of the step, profile or try that it is of;
    `job_digest` is that of `digest`.
    """

    nonce: str
    bundle_id: str
    search_id: str
    attempt_id: str
    job_digest: str


class Further(TypedDict):
    """The configurations that the verification of a swept candidate verifies beside it.

    configurations: their values; null: those that led in the sweep of its screening in the same bundle. sweep_s: device
    seconds that these and that sweep may hold together. device_s: device seconds that the search has left for all jobs
    of the bundle. null: no limit.
    """

    configurations: list[dict[str, int]] | None
    sweep_s: float | None
    device_s: float | None


class SignedJob(Ticket):
    """One line of jobs.jsonl.

    `signature`: HMAC-SHA-256 of `signed_bytes` in hex, by a key that the service keeps. `further`: of a verification;
    absent: it verifies its candidate alone.
    """

    signature: str
    job: Job
    further: NotRequired[Further]


class Scored(TypedDict):
    """The speed-up of an accepted candidate over the fastest baseline, and its 95 % interval."""

    score: float
    ci95: list[float] | None


class SignedVerification(SignedJob):
    """One line of verifications.jsonl: the full verification of a candidate, done where its screening comes out best.

    Its ticket names the screening's step, and has a nonce of its own. screening: the nonce of the screening's job in
    the same bundle; of a candidate that was screened before, the id of that step, and `screened` is what it found.
    champion: the best verified candidate of the search, which this one must be faster than to be worth it; null: there
    is none yet. together: how many candidates are verified where they tie with the best, itself included; absent: 1.
    """

    screening: str
    champion: Scored | None
    screened: NotRequired[Scored]
    together: NotRequired[int]


class SignedVerdict(Ticket):
    """One line of verdicts.jsonl.

    The ticket as it came, the digest of the job that was judged, and its host's description of itself.
    `screening_digest`: of a verification that came along, the digest of the verdict on its screening by which the host
    chose it and set its candidate's numbers.
    """

    signature: str
    verdict: Verdict
    host: dict[str, str]
    screening_digest: NotRequired[str]


class Unjudged(TypedDict):
    """Why a job has no verdict.

    Its judge could not read it (refused), had none in time (timeout), or fell (died).
    """

    kind: Literal["refused", "timeout", "died"]
    reason: str


class SignedUnjudged(Ticket):
    """One line of unjudged.jsonl.

    The ticket as it came, why its job has no verdict, and its host's description of itself.
    """

    signature: str
    unjudged: Unjudged
    host: dict[str, str]


def canonical(document: Any) -> bytes:
    """Return the one spelling of a JSON document: sorted names, no spaces, ASCII.

    Raises ValueError for NaN and infinity.
    """
    return json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False).encode()


def digest(document: Any) -> str:
    """Return the SHA-256 of the canonical spelling, hex."""
    return hashlib.sha256(canonical(document)).hexdigest()


def ticket_of(line: Mapping[str, Any]) -> Ticket:
    """Return the ticket on a line of either file."""
    return {
        "nonce": line["nonce"],
        "bundle_id": line["bundle_id"],
        "search_id": line["search_id"],
        "attempt_id": line["attempt_id"],
        "job_digest": line["job_digest"],
    }


def signed_bytes(ticket: Ticket) -> bytes:
    """Return the bytes that are signed: the ticket, under the format's name and version."""
    return canonical({"format": FORMAT, "version": VERSION, **ticket})
