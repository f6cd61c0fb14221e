"""The verifications that a bundle carries: the host does those that its own screenings make worth it.

As a search's policy would: the best accepted candidate, where it is faster than the champion and does not tie with it;
the next best where that one is rejected, or turns out slower. So a round is over with one trip.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import cast

from warpsmith.kernels_db.job.bundle import Champion, SignedVerification
from warpsmith.kernels_db.job.documents import Job, Verdict
from warpsmith.kernels_db.job.strict_json import read_strictly
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


def choose_verification(
    verifications: Sequence[SignedVerification], verdicts: Mapping[str, Verdict]
) -> SignedVerification | None:
    """Choose what is to be verified next, by the verdicts so far on the jobs of the bundle, by their nonces.

    None where nothing is worth it. What was verified counts by its verification.
    """
    champions = [one["champion"] for one in verifications[:1] if one["champion"] is not None]
    best: tuple[float, SignedVerification, Verdict] | None = None
    for one in verifications:
        screened, verified = verdicts.get(one["screening"]), verdicts.get(one["nonce"])
        if screened is None or screened["verdict"] != "accepted" or screened["score"] is None:
            continue
        if verified is None:
            if best is None or screened["score"] > best[0]:
                best = screened["score"], one, screened
        elif verified["verdict"] == "accepted" and verified["score"] is not None:
            champions.append({"score": verified["score"], "ci95": verified["score_ci95"]})
    if best is None or not all(_beats(best[2], champion) for champion in champions):
        return None
    return best[1]


def job_to_verify(verification: SignedVerification, screened: Verdict) -> Job:
    """Return the job, on the candidate as its screening has left it: with the numbers that a sweep chose."""
    job = verification["job"]
    candidate, sweep = job["candidate"], screened.get("sweep")
    if candidate is None or sweep is None:
        return job
    return {**job, "candidate": {**candidate, "source": specialise(candidate["source"], sweep["chosen"])}}


def _beats(found: Verdict, champion: Champion) -> bool:
    """Check whether a screened candidate is faster than the champion, and does not tie with it.

    Two tie where the score of each lies in the other's interval (`workers.search.ranking.ties`).
    """
    score = found["score"] or 0.0
    ties = _within(score, champion["ci95"]) and _within(champion["score"], found["score_ci95"])
    return score > champion["score"] and not ties


def _within(score: float, interval: list[float] | None) -> bool:
    return interval is not None and interval[0] <= score <= interval[1]
