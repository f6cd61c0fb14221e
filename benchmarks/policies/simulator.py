"""A SIMULATION of larger budgets than were recorded: an endless world, fitted to recordings.

Nothing that it says was measured. Of the recordings it takes: how often a candidate is accepted, how often a
repair is, how good the ideas on the reference are, and how an idea changes the logarithm of its parent's
score. That change shrinks as the parent nears the best recorded score (a straight line fitted by least
squares), with the spread of ideas and of codes of one idea drawn from the recorded residuals. Techniques come
as often as they were recorded.

A candidate leans to some bench workloads: the logarithm of its speed-up there, less the mean. Leans of ideas on the
reference are drawn from the recorded ones. On another parent a candidate keeps the recorded share of the parent's lean,
by least squares through the origin, and the recorded residuals are added. A joined candidate has on each workload what
the chosen part has.
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from benchmarks.policies.outcomes import Outcome
from benchmarks.policies.play import Answer, Proposal
from benchmarks.policies.recording import Candidate, Recording

HEADROOM = 1.25
"""The simulated limit as a multiple of the best recorded score.

Larger budgets may find more, but not without end.
"""


Lean: TypeAlias = tuple[float, ...]


@dataclass(frozen=True)
class Fit:
    """The parameters fitted to a recording; logarithms are natural, of scores.

    workloads: names of the bench workloads, in the order of every lean; none where speed-ups by workload are not known.
    leans: of candidates on the reference. kept: share of a parent's lean that is kept. turns: residuals of leans.
    first: of ideas on the reference. slope, offset: of the change against the room left below `ceiling`. ideas, codes:
    residuals of ideas and of codes within one. right, repaired: shares that are accepted. width: of an interval, as the
    logarithm of high over low. tokens: (prompt, reply) of a request for ideas, per idea in the reply, and of one for
    code.
    """

    workloads: tuple[str, ...]
    leans: tuple[Lean, ...]
    kept: float
    turns: tuple[Lean, ...]
    first: tuple[float, ...]
    slope: float
    offset: float
    ideas: tuple[float, ...]
    codes: tuple[float, ...]
    right: float
    repaired: float
    width: float
    ceiling: float
    techniques: tuple[str, ...]
    ideation: tuple[int, int]
    coding: tuple[int, int]


def fit(recording: Recording) -> Fit:
    """Fit to one recording.

    Raises ValueError where too little was recorded: fewer than 10 accepted candidates.
    """
    everybody = [recording.root, *recording.candidates.values()]
    scores = {one.digest: math.log(one.outcome.score) for one in recording.judged if one.outcome and one.outcome.score}
    if len(scores) < 10:
        raise ValueError(f"{recording.op}: {len(scores)} accepted candidates, expected at least 10")
    ceiling = max(scores.values()) + math.log(HEADROOM)
    first: list[float] = []
    rooms: list[float] = []
    gains: list[float] = []
    within: list[float] = []
    techniques: list[str] = []
    written: list[Candidate] = []
    for place in everybody:
        for asked in place.asked:
            for recorded in asked.ideas:
                techniques.append(recorded.idea["technique"])
                codes = [code.candidate for code in recorded.codes if code.candidate is not None]
                written += codes
                found = [scores[code.digest] for code in codes if code.digest in scores]
                if not found:
                    continue
                mean = sum(found) / len(found)
                within += [score - mean for score in found if len(found) > 1]
                if place is recording.root:
                    first.append(mean)
                elif place.digest in scores:
                    rooms.append(ceiling - scores[place.digest])
                    gains.append(mean - scores[place.digest])
    slope, offset = (float(value) for value in np.polyfit(rooms, gains, 1)) if len(set(rooms)) > 1 else (0.0, 0.0)
    residuals = [gain - slope * room - offset for room, gain in zip(rooms, gains, strict=True)]
    repairs = [one.repair.candidate for one in written if one.repair is not None and one.repair.candidate is not None]
    outcomes = [one.outcome for one in recording.judged if one.outcome is not None]
    widths = [math.log(outcome.high / outcome.low) for outcome in outcomes if outcome.high and outcome.low]
    first_asked = recording.root.asked[0]
    a_code = next(code for recorded in first_asked.ideas for code in recorded.codes)
    workloads, leans, kept, turns = _fit_leans(recording)
    return Fit(
        workloads=workloads,
        leans=leans,
        kept=kept,
        turns=turns,
        first=tuple(first),
        slope=slope,
        offset=offset,
        ideas=tuple(residuals) or (0.0,),
        codes=tuple(within) or (0.0,),
        right=_share([one.digest in scores for one in written]),
        repaired=_share([one.digest in scores for one in repairs]),
        width=float(np.median(widths)),
        ceiling=ceiling,
        techniques=tuple(techniques),
        ideation=(first_asked.prompt_tokens, first_asked.reply_tokens // max(1, len(first_asked.ideas))),
        coding=(a_code.prompt_tokens, a_code.reply_tokens),
    )


def _fit_leans(recording: Recording) -> tuple[tuple[str, ...], tuple[Lean, ...], float, tuple[Lean, ...]]:
    """Return the bench workloads, leans on the reference, the share of a parent's lean that is kept, and residuals."""
    known = {one.digest: one.outcome.workloads for one in recording.judged if one.outcome and one.outcome.workloads}
    workloads = tuple(next(iter(known.values()), {}))
    if len(workloads) < 2:
        return (), ((),), 0.0, ((),)
    logs = {digest: np.log([found[name][0] for name in workloads]) for digest, found in known.items()}
    lean = {digest: found - found.mean() for digest, found in logs.items()}
    first, pairs = [], []
    for place in [recording.root, *recording.candidates.values()]:
        codes = [code.candidate for asked in place.asked for idea in asked.ideas for code in idea.codes]
        children = [lean[code.digest] for code in codes if code is not None and code.digest in lean]
        if place is recording.root:
            first += children
        elif place.digest in lean:
            pairs += [(lean[place.digest], child) for child in children]
    spread = sum(float(parent @ parent) for parent, _ in pairs)
    kept = sum(float(parent @ child) for parent, child in pairs) / spread if spread > 0.0 else 0.0
    turns = [child - kept * parent for parent, child in pairs]
    return workloads, tuple(map(_plain, first)), kept, tuple(map(_plain, turns)) or (tuple(0.0 for _ in workloads),)


def _plain(values: NDArray[np.float64]) -> Lean:
    return tuple(float(value) for value in values)


def _share(flags: Sequence[bool]) -> float:
    return sum(flags) / len(flags) if flags else 0.0


@dataclass(frozen=True)
class Simulated:
    """A simulated candidate without code; `score` is the logarithm of its speed-up, `lean` as `Fit` has it."""

    number: int
    score: float
    lean: Lean
    right: bool


@dataclass
class Simulator:
    """See the module and `play.World`."""

    fit: Fit
    luck: random.Random
    _numbers: count[int] = field(default_factory=count)

    def ideas(self, parent: Simulated | None, count: int, avoid: Sequence[str]) -> Answer[list[Proposal]] | None:
        """Return as many ideas as were asked for."""
        names = [name for name in self.fit.techniques if name not in avoid] or list(self.fit.techniques)
        fresh = [self._proposal(parent, self.luck.choice(names)) for _ in range(count)]
        return Answer(self.fit.ideation[0], self.fit.ideation[1] * count, fresh)

    def code(self, parent: Simulated | None, proposal: Proposal | None, variant: int) -> Answer[Simulated] | None:
        """Return a candidate with its proposal's score and the spread of codes.

        None without a proposal, since no such code was recorded.
        """
        if proposal is None:
            return None
        score = min(proposal.key + self.luck.choice(self.fit.codes), self.fit.ceiling)
        return Answer(*self.fit.coding, self._candidate(score, self._lean(parent), self.fit.right))

    def repair(self, candidate: Simulated) -> Answer[Simulated] | None:
        """Return a candidate of the same score, accepted as often as repairs were."""
        return Answer(*self.fit.coding, self._candidate(candidate.score, candidate.lean, self.fit.repaired))

    def kept(self, candidate: Simulated) -> bool:
        """Return True: there is no end to ideas."""
        return True

    def digest(self, candidate: Simulated) -> str:
        """Return its number: no two are the same."""
        return str(candidate.number)

    def outcome(self, candidate: Simulated) -> Outcome:
        """Return its score with an interval of the usual width."""
        if not candidate.right:
            return Outcome("rejected", "screen")
        half = self.fit.width / 2
        share = 0.95 * math.exp(candidate.score - self.fit.ceiling)
        score, low, high = (math.exp(candidate.score + shift) for shift in (0.0, -half, half))
        # The score's interval is that of a mean, so one workload's is wider by the root of their count.
        half *= math.sqrt(max(1, len(self.fit.workloads)))
        by_workload = {
            name: (speed, speed * math.exp(-half), speed * math.exp(half))
            for name, lean in zip(self.fit.workloads, candidate.lean, strict=True)
            for speed in [math.exp(candidate.score + lean)]
        }
        return Outcome("accepted", "time", score, low, high, share, by_workload)

    def joined(self, chosen: Mapping[str, Simulated]) -> Simulated:
        """Return the candidate that has on each workload what the one has that is chosen for it."""
        places = {name: place for place, name in enumerate(self.fit.workloads)}
        logs = [chosen[name].score + chosen[name].lean[place] for name, place in places.items()]
        mean = math.fsum(logs) / len(logs)
        return Simulated(next(self._numbers), mean, tuple(log - mean for log in logs), True)

    def _candidate(self, score: float, lean: Lean, right: float) -> Simulated:
        return Simulated(next(self._numbers), score, lean, self.luck.random() < right)

    def _lean(self, parent: Simulated | None) -> Lean:
        if parent is None:
            return self.luck.choice(self.fit.leans)
        turn = self.luck.choice(self.fit.turns)
        return tuple(self.fit.kept * lean + change for lean, change in zip(parent.lean, turn, strict=True))

    def _proposal(self, parent: Simulated | None, technique: str) -> Proposal:
        if parent is None:
            worth = self.luck.choice(self.fit.first)
        else:
            room = self.fit.ceiling - parent.score
            worth = parent.score + self.fit.offset + self.fit.slope * room + self.luck.choice(self.fit.ideas)
        return Proposal(technique, f"idea {next(self._numbers)}", worth)
