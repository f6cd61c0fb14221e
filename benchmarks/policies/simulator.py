"""A SIMULATION of larger budgets than were recorded: an endless world, fitted to recordings.

Nothing that it says was measured. Of the recordings it takes: how often a candidate is accepted, how often a
repair is, how good the ideas on the reference are, and how an idea changes the logarithm of its parent's
score. That change shrinks as the parent nears the best recorded score (a straight line fitted by least
squares), with the spread of ideas and of codes of one idea drawn from the recorded residuals. Techniques come
as often as they were recorded.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import count

import numpy as np

from benchmarks.policies.outcomes import Outcome
from benchmarks.policies.play import Answer, Proposal
from benchmarks.policies.recording import Candidate, Recording

HEADROOM = 1.25
"""The simulated limit as a multiple of the best recorded score.

Larger budgets may find more, but not without end.
"""


@dataclass(frozen=True)
class Fit:
    """The parameters fitted to a recording; logarithms are natural, of scores.

    first: of ideas on the reference. slope, offset: of the change against the room left below `ceiling`. ideas, codes:
    residuals of ideas and of codes within one. right, repaired: shares that are accepted. width: of an interval, as the
    logarithm of high over low. tokens: (prompt, reply) of a request for ideas, per idea in the reply, and of one for
    code.
    """

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
    return Fit(
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


def _share(flags: Sequence[bool]) -> float:
    return sum(flags) / len(flags) if flags else 0.0


@dataclass(frozen=True)
class Simulated:
    """A simulated candidate without code; `score` is the logarithm of its speed-up."""

    number: int
    score: float
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
        return Answer(*self.fit.coding, self._candidate(score, self.fit.right))

    def repair(self, candidate: Simulated) -> Answer[Simulated] | None:
        """Return a candidate of the same score, accepted as often as repairs were."""
        return Answer(*self.fit.coding, self._candidate(candidate.score, self.fit.repaired))

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
        return Outcome("accepted", "time", score, low, high, share)

    def _candidate(self, score: float, right: float) -> Simulated:
        return Simulated(next(self._numbers), score, self.luck.random() < right)

    def _proposal(self, parent: Simulated | None, technique: str) -> Proposal:
        if parent is None:
            worth = self.luck.choice(self.fit.first)
        else:
            room = self.fit.ceiling - parent.score
            worth = parent.score + self.fit.offset + self.fit.slope * room + self.luck.choice(self.fit.ideas)
        return Proposal(technique, f"idea {next(self._numbers)}", worth)
