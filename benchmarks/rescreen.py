"""Screen the recorded candidates of searches again, all arms of an op in turns by one judge.

Arms that were screened on different cards, or never, compare so. A candidate is screened as its search screens it: with
the default limits, and over its tunables within the search's own limit on sweep seconds.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, zip_longest
from pathlib import Path
from typing import Any, cast

from benchmarks.policies import recording
from benchmarks.showcase import ROOT, Shown, ask, gpu_target
from warpsmith.kernels_db.job.documents import Job, JobCandidate, Level, Verdict
from warpsmith.kernels_db.job.sweep_documents import SWEEP_S
from warpsmith.kernels_db.spec.op import Op, Target, load_op
from warpsmith.kernels_db.spec.resolve import DEFAULT_LIMITS, build_job
from warpsmith.workers.gate.tunables import has_configurations, specialise
from warpsmith.workers.judge.protocol.client import JudgeClient
from warpsmith.workers.search.budget import parse_budget, sweep_seconds_left

Row = dict[str, Any]


@dataclass(frozen=True)
class Recorded:
    """A candidate of a search's pool, with the numbers that the search gave it."""

    seq: int
    round: int
    technique: str
    title: str
    source: str


def as_screened(told: Mapping[str, Any], verdict: Mapping[str, Any]) -> Row:
    """Return a candidate as its verdict at level screen has it. `told`: seq, round, technique, title, verification."""
    score = verdict["score"]
    right = verdict["verdict"] == "accepted" and score is not None and told["verification"] != "failed"
    where = str(verdict["device"].get("name", "no GPU"))
    return {**told, "score": score, "ci95": verdict["score_ci95"], "right": right, "device": where}


def best_of(judged: Sequence[Row]) -> Row | None:
    """Return the fastest right candidate."""
    return max((each for each in judged if each["right"]), key=lambda each: float(each["score"]), default=None)


def recorded(row: Row, pool: Path) -> list[Recorded]:
    """Return the candidates of a search that its pool holds, by their numbers.

    Those whose title DATA knows have its numbers; the others those that a search gives: round by round, in the order of
    the ideas. What was written twice counts once. Raises OSError, ValueError naming the pool's line and field.
    """
    found = list(_walk(recording.load(pool, None).root, 1, set()))
    known: dict[str, list[tuple[int, int]]] = {}
    for seq, number, title in sorted({(each["seq"], each["round"], each["title"]) for each in row["judged"]}):
        known.setdefault(title, []).append((seq, number))
    free = iter(sorted(set(range(1, len(found) + len(row["judged"]) + 1)) - {each["seq"] for each in row["judged"]}))
    numbered = []
    for number, technique, title, source in sorted(found, key=lambda each: each[0]):
        seq, told = known[title].pop(0) if known.get(title) else (next(free), number)
        numbered.append(Recorded(seq, told, technique, title, source))
    return sorted(numbered, key=lambda each: each.seq)


def _walk(place: recording.Candidate, number: int, seen: set[str]) -> Iterator[tuple[int, str, str, str]]:
    """Yield round, technique, title and source of what was written on a candidate, from round `number` on."""
    for later, asked in enumerate(place.asked):
        for one in asked.ideas:
            for code in one.codes:
                candidate = code.candidate
                while candidate is not None and candidate.repair is not None:
                    candidate = candidate.repair.candidate
                if candidate is None or candidate.digest in seen:
                    continue
                seen.add(candidate.digest)
                yield number + later, one.idea["technique"], one.idea["title"], candidate.source
                yield from _walk(candidate, number + later + 1, seen)


def in_turns(rows: Sequence[Row], found: Mapping[str, Sequence[Recorded]]) -> list[tuple[Row, Recorded]]:
    """Return the first candidate of each search, then the second of each, and so on."""
    queues = [[(row, each) for each in found[row["search"]]] for row in rows]
    return [each for each in chain.from_iterable(zip_longest(*queues)) if each is not None]


def screen(rows: Sequence[Row], found: Mapping[str, Sequence[Recorded]], time_s: float) -> Iterator[Row]:
    """Screen the candidates, by search, op by op, then verify each arm's best; yields each result as had.

    Where that one is not accepted the arm's next best is verified, until one is or none is left. A verified one comes
    again: the same row, with `verdict`, `source`, `error` and `passed_over`, the numbers of the faster ones that were
    not accepted; a rejected one is right no more. An arm's best are those of the rounds that every arm of the op has.
    A candidate without a verdict has an `error`, and nothing of what it would say. Raises SystemExit where there is no
    GPU.
    """
    target = gpu_target()
    if target is None:
        raise SystemExit("found no GPU here, expected one: candidates are compared on the device that they are for")
    results: list[Row] = []
    with tempfile.TemporaryDirectory(prefix="warpsmith-search-") as cache, JudgeClient(cache=Path(cache)) as client:
        for op in dict.fromkeys(row["op"] for row in rows):
            bench = _Bench(load_op(ROOT / "examples" / f"{op}.yaml"), target, time_s, client)
            arms = [row for row in rows if row["op"] == op]
            sources: dict[tuple[str, int], str] = {}
            turns = in_turns(arms, found)
            for position, (row, each) in enumerate(turns):
                waiting = [other for of, other in turns[position:] if of is row and other.round == each.round]
                result, source = bench.screen(row, each, waiting)
                results.append(result)
                sources[row["search"], each.seq] = source
                yield result
            for ranked in rankings(arms, [each for each in results if each["op"] == op]):
                for position, winner in enumerate(ranked):
                    before = [one["seq"] for one in ranked[:position]]
                    yield bench.verify(winner, sources[winner["search"], winner["seq"]], before)
                    if winner["verification"] == "passed":
                        break


class _Bench:
    """Judges the candidates of one op."""

    def __init__(self, op: Op, target: str, time_s: float, client: JudgeClient) -> None:
        self._op, self._target, self._time_s, self._client = op, Target.parse(target), time_s, client
        self._swept: dict[str, float] = {}

    def screen(self, row: Row, each: Recorded, waiting: Iterable[Recorded]) -> tuple[Row, str]:
        """Return the result, and the source with the numbers that the sweep chose. `waiting`: of its round, and it."""
        name = row["search"]
        limits = {}
        left = sweep_seconds_left(parse_budget(row["budget"]), self._swept.get(name, 0.0))
        if left is not None and has_configurations(each.source):
            # The share that a search reserves for a screening, where those of its round wait together.
            limits["sweep_s"] = min(left / sum(has_configurations(one.source) for one in waiting), SWEEP_S)
        shown = self.ask("screen", row["language"], each.source, limits)
        result = {"search": name, "op": row["op"], "arm": row["arm"], "language": row["language"]}
        result |= {"seq": each.seq, "round": each.round, "technique": each.technique, "title": each.title}
        if shown.verdict is None:
            return result | {"error": shown.error}, each.source
        self._swept[name] = self._swept.get(name, 0.0) + shown.verdict.get("sweep_seconds", 0.0)
        result = as_screened(result | {"verification": "none"}, shown.verdict) | {"reason": shown.verdict["reason"]}
        return result, _chosen(each.source, shown.verdict)

    def verify(self, result: Row, source: str, passed_over: Sequence[int]) -> Row:
        """Verify a screened candidate; returns its result, in which the outcome is written."""
        shown = self.ask("verify", result["language"], source, {})
        result |= {"verdict": shown.verdict, "error": shown.error, "source": source, "passed_over": list(passed_over)}
        if shown.verdict is not None:
            accepted = shown.verdict["verdict"] == "accepted"
            result |= {"verification": "passed" if accepted else "failed", "right": accepted}
        return result

    def ask(self, level: Level, language: str, source: str, more: Mapping[str, float]) -> Shown:
        candidate = cast("JobCandidate", {"language": language, "source": source})
        limits = {**DEFAULT_LIMITS, "time_s": self._time_s, **more}
        job: Job = build_job(self._op, self._target, level=level, candidate=candidate, limits=cast("Any", limits))
        return ask(self._client, job)


def _chosen(source: str, verdict: Verdict) -> str:
    sweep = verdict.get("sweep")
    return source if sweep is None else specialise(source, sweep["chosen"])


def rankings(arms: Sequence[Row], results: Sequence[Row]) -> list[list[Row]]:
    """Return each arm's right candidates, fastest first, in the rounds in which all arms have a verdict."""
    judged = [[each for each in results if each["search"] == row["search"] and "right" in each] for row in arms]
    shared = set.intersection(*({each["round"] for each in one} for one in judged))
    right = [[each for each in one if each["right"] and each["round"] in shared] for one in judged]
    return [sorted(one, key=lambda each: float(each["score"]), reverse=True) for one in right]
