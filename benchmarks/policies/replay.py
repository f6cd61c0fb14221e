"""The world of a recording: recorded answers in a seeded order, without replacement."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence

from benchmarks.policies.outcomes import Outcome, join_outcomes
from benchmarks.policies.play import Answer, Proposal, proposal_digest
from benchmarks.policies.recording import Candidate, Code, RecordedIdea, Recording

REJECTED = Outcome("rejected", "compile")


class Replay:
    """A recording as a `play.World`.

    A request for more than was recorded gets what is left, and none once nothing is.
    """

    def __init__(self, recording: Recording, luck: random.Random) -> None:
        self._root = recording.root
        self._luck = luck
        self._left: dict[str, list[RecordedIdea]] = {}
        self._orders: dict[tuple[str, int], list[Code]] = {}

    def ideas(self, parent: Candidate | None, count: int, avoid: Sequence[str]) -> Answer[list[Proposal]] | None:
        """Return the next ideas recorded on `parent`, as far as their techniques may be used."""
        place = parent or self._root
        if place.digest not in self._left:
            recorded = [idea for asked in place.asked for idea in asked.ideas]
            self._left[place.digest] = self._luck.sample(recorded, len(recorded))
        left = self._left[place.digest]
        chosen = [idea for idea in left if idea.idea["technique"] not in avoid][:count]
        if not chosen:
            return None
        self._left[place.digest] = [idea for idea in left if not any(idea is other for other in chosen)]
        # A reply with fewer ideas than were recorded costs its share of the recorded reply.
        share = sum(asked.reply_tokens for asked in place.asked) / sum(len(asked.ideas) for asked in place.asked)
        proposals = [self._proposal(idea) for idea in chosen]
        return Answer(place.asked[0].prompt_tokens, round(share * len(chosen)), proposals)

    def code(self, parent: Candidate | None, proposal: Proposal | None, variant: int) -> Answer[Candidate] | None:
        """Return the next recorded code of an idea, or of no idea; each is given once."""
        place = parent or self._root
        codes = place.plain if proposal is None else proposal.key.codes
        key = ("plain" + place.digest, 0) if proposal is None else ("", id(proposal.key))
        order = self._orders.setdefault(key, self._luck.sample(codes, len(codes)))
        if variant >= len(order):
            return None
        return _answer(order[variant])

    def repair(self, candidate: Candidate) -> Answer[Candidate] | None:
        """Return the recorded repair."""
        return None if candidate.repair is None else _answer(candidate.repair)

    def digest(self, candidate: Candidate) -> str:
        """Return its source's digest."""
        return candidate.digest

    def outcome(self, candidate: Candidate) -> Outcome:
        """Return the measured outcome; a candidate without one counts as rejected."""
        return candidate.outcome or REJECTED

    def joined(self, chosen: Mapping[str, Candidate]) -> Candidate:
        """Return a candidate with the outcome that the measured ones of its parts promise; nothing is asked on it."""
        outcome = join_outcomes({name: self.outcome(candidate) for name, candidate in chosen.items()})
        return Candidate("+".join(sorted(candidate.digest for candidate in chosen.values())), "", outcome)

    def kept(self, candidate: Candidate) -> bool:
        """Check whether ideas on it were recorded, or it was joined and takes none."""
        return bool(candidate.asked) or not candidate.source

    def _proposal(self, recorded: RecordedIdea) -> Proposal:
        idea = recorded.idea
        digest = proposal_digest(idea["technique"], idea["title"], idea["mechanism"])
        return Proposal(idea["technique"], digest, recorded)


def _answer(code: Code) -> Answer[Candidate]:
    return Answer(code.prompt_tokens, code.reply_tokens, code.candidate)
