"""The verifications that a bundle carries: the host does those that the screenings make worth it.

As a search's policy would: the best accepted candidate, where it is faster than the champion and does not tie with it,
with those that tie with it; the next best where that one is rejected, or turns out slower. A candidate that was
screened before the bundle was made counts as those that the bundle screens. So a round is over with one trip.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import cast

from warpsmith.kernels_db.job.bundle import Further, Scored, SignedJob, SignedVerification
from warpsmith.kernels_db.job.documents import Job, Verdict
from warpsmith.kernels_db.job.strict_json import read_strictly
from warpsmith.kernels_db.job.sweep_documents import find_leaders
from warpsmith.workers.gate.tunables import specialise
from warpsmith.workers.judge.protocol.contract import BrokenDocument, check


def read_verification(line: str) -> SignedVerification:
    """Read one line of verifications.jsonl. Raises BrokenDocument, ValueError."""
    document = read_strictly(line)
    check(SignedVerification, document, "")
    found = cast("SignedVerification", document)
    if found["job"]["level"] != "verify" or found["job"]["candidate"] is None:
        raise BrokenDocument("job.level", found["job"]["level"], "'verify', of a candidate")
    return found


def split_lines(text: str) -> tuple[list[str], str]:
    """Split verifications.jsonl into its whole lines, none of an empty file, and the part of one that was cut off.

    The last line may lack its line break and be whole: no part of a JSON object is JSON.
    """
    *lines, last = text.split("\n")
    if not last:
        return [] if lines == [""] else lines, ""
    try:
        read_strictly(last)
    except ValueError:
        return lines, last
    return [*lines, last], ""


@dataclass(frozen=True)
class _Contender:
    """An accepted candidate with its verification: what its screening found, and the latter's verdict, once there."""

    line: SignedVerification
    screened: Scored
    verified: Verdict | None


def choose_verification(
    verifications: Sequence[SignedVerification], verdicts: Mapping[str, Verdict]
) -> SignedVerification | None:
    """Choose what is to be verified next, by the verdicts so far on the jobs of the bundle, by their nonces.

    None where nothing is worth it. What was verified counts by its verification.
    """
    contenders = [
        _Contender(line, screened, verdicts.get(line["nonce"]))
        for line in verifications
        if (screened := _read_screened(line, verdicts)) is not None
    ]
    waiting = [one for one in contenders if one.verified is None]
    if not waiting:
        return None
    best = max(waiting, key=lambda one: one.screened["score"])
    champions = [one["champion"] for one in verifications[:1] if one["champion"] is not None]
    passed = [(one, found) for one in contenders if (found := _read_score(one.verified)) is not None]
    if all(_beats(best.screened, champion) for champion in [*champions, *(found for _, found in passed)]):
        return best.line
    # Of short timings that tie the luckiest leads; full ones tell them apart.
    leader = max(passed, key=lambda each: each[0].screened["score"], default=None)
    if leader is None or len(passed) >= best.line.get("together", 1):
        return None
    tied = [one for one in waiting if _ties(one.screened, leader[0].screened)]
    return max(tied, key=lambda one: one.screened["score"]).line if tied else None


def job_to_verify(verification: SignedVerification, screened: Verdict) -> Job:
    """Return the job, on the candidate as its screening has left it: with the numbers that a sweep chose."""
    job = verification["job"]
    candidate, sweep = job["candidate"], screened.get("sweep")
    if candidate is None or sweep is None:
        return job
    return {**job, "candidate": {**candidate, "source": specialise(candidate["source"], sweep["chosen"])}}


def list_further(job: SignedJob, screened: Verdict | None) -> Sequence[Mapping[str, int]]:
    """List the configurations that a verification verifies beside its candidate: those that led in its sweep.

    screened: the verdict on its screening in the same bundle, where that has it.
    """
    further = job.get("further")
    if further is None:
        return ()
    if further["configurations"] is not None:
        return further["configurations"]
    sweep = None if screened is None else screened.get("sweep")
    return () if sweep is None else find_leaders(sweep)


def limit_further(further: Further, screened: Verdict | None, verdicts: Mapping[str, Verdict]) -> float | None:
    """Return the device seconds that further configurations may hold; None without a limit.

    verdicts: those so far on the jobs of the bundle, whose device seconds are the search's.
    """
    limits: list[float] = []
    if further["sweep_s"] is not None:
        limits.append(further["sweep_s"] - (0.0 if screened is None else screened.get("sweep_seconds", 0.0)))
    if further["device_s"] is not None:  # of a copy: other threads add verdicts
        limits.append(
            further["device_s"] - sum(one["seconds"].get("exclusive", 0.0) for one in list(verdicts.values()))
        )
    return min(limits, default=None)


def _read_screened(line: SignedVerification, verdicts: Mapping[str, Verdict]) -> Scored | None:
    """Return what a candidate's screening found; None where it has no verdict, or was not accepted."""
    return line["screened"] if "screened" in line else _read_score(verdicts.get(line["screening"]))


def _read_score(verdict: Verdict | None) -> Scored | None:
    if verdict is None or verdict["verdict"] != "accepted" or verdict["score"] is None:
        return None
    return {"score": verdict["score"], "ci95": verdict["score_ci95"]}


def _beats(found: Scored, champion: Scored) -> bool:
    """Check whether a candidate is faster than the champion, and does not tie with it."""
    return found["score"] > champion["score"] and not _ties(found, champion)


def _ties(one: Scored, other: Scored) -> bool:
    """Check whether the score of each lies in the other's interval, as `workers.search.ranking.ties` does."""
    return _within(one["score"], other["ci95"]) and _within(other["score"], one["ci95"])


def _within(score: float, interval: list[float] | None) -> bool:
    return interval is not None and interval[0] <= score <= interval[1]
