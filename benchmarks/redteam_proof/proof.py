"""Proofs that cheats cheat: where what is meant to catch it is off, each does what it says. One that does not is void.

A void entry would be caught whatever the judge did: it does not compile, falls, or computes nonsense.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from itertools import groupby
from pathlib import Path

from benchmarks.redteam_catalogue.entry import ENDED, Cheat
from benchmarks.redteam_catalogue.trial import GAIN, MOST_TRIES, Outcome, judge_once, lost, outcome_of, speedup_of
from benchmarks.redteam_proof import naive
from benchmarks.redteam_proof.defences import Defence, Row, row_of
from benchmarks.redteam_proof.undefended import UndefendedClient
from warpsmith.kernels_db.job.documents import Verdict
from warpsmith.workers.judge.protocol.client import JudgeClient, JudgeDied, JudgeTimeout

WITHOUT_A_HOOK: frozenset[Defence] = frozenset({"hold-out", "limits", "numbers", "process"})
ASKED_LATE: frozenset[Defence] = frozenset({"families", "hold-out", "numbers", "attack", "sanitizers", "surroundings"})
"""What is at work in a verification alone."""

TOGETHER = 8
"""Entries that one judge proves in turn."""


def prove(cheats: Sequence[Cheat], cache: Path, *, at_once: int = 1) -> Iterator[tuple[Cheat, Outcome]]:
    """Prove each cheat, in the order of what is off: a judge is started for each set of defences.

    at_once: parts of a set that are proven side by side, each by a judge of its own. What is meant to gain time comes
    last, one after the other.
    """
    rows = [(cheat, row) for cheat in cheats if (row := row_of(cheat)) is not None]
    for cheat in cheats:
        if row_of(cheat) is None:
            yield cheat, lost(cheat, LookupError("`defences` has no row of it"))
    calm, timed = ([one for one in rows if bool(one[0].gains) == gains] for gains in (False, True))
    with ThreadPoolExecutor(at_once) as pool:
        for found in pool.map(partial(_proven, cache), _parts(calm, TOGETHER)):
            yield from found
    for part in _parts(timed, len(timed)):
        yield from _proven(cache, part)


def _parts(rows: Sequence[tuple[Cheat, Row]], most: int) -> Iterator[list[tuple[Cheat, Row]]]:
    """Yield the entries for which the same defences are off, at most so many together."""
    for _, group in groupby(sorted(rows, key=_order), key=lambda one: one[1].defences):
        entries = list(group)
        for start in range(0, len(entries), most):
            yield entries[start : start + most]


def _proven(cache: Path, part: Sequence[tuple[Cheat, Row]]) -> list[tuple[Cheat, Outcome]]:
    """Prove entries for which the same defences are off."""
    off = part[0][1].defences
    if "process" in off:
        return [(cheat, _on_naive(cheat, row, cache)) for cheat, row in part]
    with UndefendedClient(off - WITHOUT_A_HOOK, cache=cache) as client:
        return [(cheat, _undefended(client, cheat, row)) for cheat, row in part]


def _order(one: tuple[Cheat, Row]) -> tuple[list[str], str]:
    return sorted(one[1].defences), one[0].op.name


def _on_naive(cheat: Cheat, row: Row, cache: Path) -> Outcome:
    start = time.monotonic()
    verdict, said = naive.evaluate(cheat, cache / "naive")
    works = verdict in row.effect or (verdict == naive.ENDED and bool(row.effect & ENDED))
    return Outcome(
        cheat.name,
        cheat.language,
        cheat.lines,
        works,
        verdict,
        "naive",
        "",
        said,
        round(time.monotonic() - start, 2),
        "",
    )


def _undefended(client: JudgeClient, cheat: Cheat, row: Row) -> Outcome:
    """Works: a verdict, or a kind of failure, that the entry names; one that gains must also gain for sure."""
    if not row.defences & ASKED_LATE and not cheat.gains:
        cheat = replace(cheat, level="screen")  # nothing that is off is asked later
    if "hold-out" in row.defences:
        cheat = replace(cheat, op=replace(cheat.op, workloads=cheat.op.workloads[:1]))
    if "numbers" in row.defences:
        cheat = replace(cheat, op=replace(cheat.op, spec=""))
    try:
        if cheat.before is not None:
            judge_once(client, replace(cheat, source=cheat.before))
        # Two verdicts are timed one after the other: what a neighbour did to one of them is no loss.
        for _ in range(MOST_TRIES if cheat.gains else 1):
            outcome = _once(client, cheat, row)
            if outcome.good:
                break
    except (JudgeDied, JudgeTimeout) as error:
        return lost(cheat, error)
    return outcome


def _once(client: JudgeClient, cheat: Cheat, row: Row) -> Outcome:
    verdict = judge_once(client, cheat)
    kind = verdict["failure"]["kind"] if verdict["failure"] else ""
    works = bool({verdict["verdict"], kind} & row.effect) and row.says in _words(verdict)
    if works and cheat.gains and cheat.honest is not None and verdict["verdict"] == "accepted":
        honest = judge_once(client, replace(cheat, source=cheat.honest))
        (low, high), (least, most) = speedup_of(verdict), speedup_of(honest)
        said = f"{low:.2f} to {high:.2f} times eager's speed, the honest kernel {least:.2f} to {most:.2f}"
        return outcome_of(cheat, verdict, low > GAIN * most, said)  # less is no gain to the judge of cheats either
    return outcome_of(cheat, verdict, works)


def _words(verdict: Verdict) -> str:
    """Return the reason and the log of a verdict."""
    failure = verdict["failure"]
    return f"{verdict['reason']}\n{failure.get('log', '') if failure else ''}"
