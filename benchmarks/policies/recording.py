"""A pool as a tree of candidates, the ideas proposed on them, and the code for each idea.

The pool holds replies by the identity of their requests. Walking it from the reference asks for every request that a
search could make, so the tree holds exactly what a replay could be answered.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from benchmarks.policies.outcomes import Outcome, OutcomeFile
from warpsmith.kernels_db.spec.op import Op, Target, load_op
from warpsmith.kernels_db.spec.resolve import resolve_workload
from warpsmith.kernels_db.store.pool_file import Pool, PoolReply, parse_pool
from warpsmith.workers.gate.normalise import normalised_digest
from warpsmith.workers.llm.base import ModelReply, RequestKind
from warpsmith.workers.llm.prompt import requests
from warpsmith.workers.llm.prompt.candidates import NodeFacts
from warpsmith.workers.llm.prompt.requests import RequestContext
from warpsmith.workers.llm.providers.cost import Prices
from warpsmith.workers.llm.reply import parsing
from warpsmith.workers.llm.reply.parsing import Idea, Unreadable

ROOT = Path(__file__).resolve().parents[2]
CHARACTERS_PER_TOKEN = 4
"""Characters per token, about right for English and code.

It estimates the tokens of a coding agent's reply, which are not counted.
"""
PRICED_AS = "gpt-5"
"""The model whose prices turn tokens into money: the default of `WARPSMITH_OPENAI_MODEL`."""
MOST_REPLIES = 100_000

_PRICES = Prices.load()


@dataclass
class Code:
    """One reply to a request for code or a repair.

    `candidate` is None where it could not be read or has no outcome; tokens are those of the prompt and the reply.
    """

    prompt_tokens: int
    reply_tokens: int
    candidate: Candidate | None


@dataclass
class RecordedIdea:
    """An idea and the codes that realise it, by variant."""

    idea: Idea
    codes: list[Code] = field(default_factory=list)


@dataclass
class Asked:
    """One reply to a request for ideas."""

    prompt_tokens: int
    reply_tokens: int
    ideas: list[RecordedIdea]


@dataclass
class Candidate:
    """A candidate with everything recorded on it; the reference has no source and no outcome.

    `ideas` in the order of their requests; `plain` are codes asked for without an idea.
    """

    digest: str
    source: str
    outcome: Outcome | None
    asked: list[Asked] = field(default_factory=list)
    plain: list[Code] = field(default_factory=list)
    repair: Code | None = None


@dataclass
class Recording:
    """One pool as a tree.

    Its op, the reference with everything under it, every candidate by its digest, and the replies that no search
    reaches.
    """

    op: str
    replies: int
    root: Candidate
    candidates: dict[str, Candidate]
    lost: list[PoolReply]

    @property
    def judged(self) -> list[Candidate]:
        """The candidates with an outcome."""
        return [candidate for candidate in self.candidates.values() if candidate.outcome is not None]


def load(pool_file: Path, outcomes: OutcomeFile | None) -> Recording:
    """Load the tree of a pool file; without `outcomes` no candidate has one."""
    pool = parse_pool(pool_file.read_text(encoding="utf-8"))
    op = load_op(ROOT / "examples" / f"{pool.header.op}.yaml")
    if op.semantic_digest != pool.header.op_digest:
        raise ValueError(f"{pool_file.name}: recorded for another version of {pool.header.op}")
    return _Walk(pool, op, outcomes.candidates if outcomes else {}).walk()


class _Walk:
    def __init__(self, pool: Pool, op: Op, outcomes: Mapping[str, Outcome]) -> None:
        self._outcomes = outcomes
        self._op = pool.header.op
        self._replies: dict[str, list[PoolReply]] = {}
        for reply in sorted(pool.replies, key=lambda reply: reply.ordinal):
            self._replies.setdefault(reply.request, []).append(reply)
        self._count = len(pool.replies)
        self._found: set[str] = set()
        target = Target.parse(pool.header.target)
        self._context = RequestContext(
            kind="ideate",
            attempt_id="",
            op=op,
            target=target,
            language=pool.header.language,
            workloads=tuple(resolve_workload(op, workload) for workload in op.workloads_for(target)),
            baselines=None,
            parent=None,
        )
        self._candidates: dict[str, Candidate] = {}
        self._prompts: dict[tuple[RequestKind, bool], int] = {}

    def walk(self) -> Recording:
        root = Candidate("", "", None)
        left = [(root, self._context)]
        for _ in range(MOST_REPLIES):
            if not left:
                break
            candidate, context = left.pop()
            left += self._grow(candidate, context)
        lost = [reply for key, replies in self._replies.items() if key not in self._found for reply in replies]
        return Recording(self._op, self._count, root, self._candidates, lost)

    def _grow(self, candidate: Candidate, context: RequestContext) -> list[tuple[Candidate, RequestContext]]:
        """Fill in what was recorded on `candidate`; return its new candidates with their contexts."""
        fresh: list[tuple[Candidate, RequestContext]] = []
        while True:
            asked = replace(context, kind="ideate", ideas=32, asked=len(candidate.asked))
            reply = self._reply(asked)
            if reply is None:
                break
            ideas = []
            for idea in self._ideas(reply):
                recorded = RecordedIdea(idea)
                coding = replace(context, kind="code", idea=idea)
                while (code := self._code(replace(coding, variant=len(recorded.codes)), fresh)) is not None:
                    recorded.codes.append(code)
                ideas.append(recorded)
            candidate.asked.append(Asked(self._prompt(asked), _tokens(reply.reply), ideas))
        plain = replace(context, kind="code", idea=None)
        while (code := self._code(replace(plain, variant=len(candidate.plain)), fresh)) is not None:
            candidate.plain.append(code)
        return fresh

    def _code(self, context: RequestContext, fresh: list[tuple[Candidate, RequestContext]]) -> Code | None:
        """Return the recorded answer to a request for code or a repair.

        A candidate seen for the first time joins `fresh`.
        """
        reply = self._reply(context)
        if reply is None:
            return None
        prompt, tokens = self._prompt(context), _tokens(reply.reply)
        try:
            source = parsing.code(_model_reply(reply))
        except Unreadable:
            return Code(prompt, tokens, None)
        digest = normalised_digest(source)
        candidate = self._candidates.get(digest)
        if candidate is None:
            candidate = self._candidates[digest] = Candidate(digest, source, self._outcomes.get(digest))
            facts = NodeFacts(0, context.idea, source, digest, None)
            fresh.append((candidate, replace(context, parent=facts, idea=None, failing=None, variant=0)))
            failed = replace(context, kind="repair", failing=facts)
            candidate.repair = self._code(failed, fresh)
        return Code(prompt, tokens, candidate)

    def _reply(self, context: RequestContext) -> PoolReply | None:
        """Return the last reply to a request: the one after its re-asks."""
        key = requests.identity(context)
        if key not in self._replies:
            return None
        self._found.add(key)
        return self._replies[key][-1]

    def _ideas(self, reply: PoolReply) -> list[Idea]:
        try:
            return parsing.ideas(_model_reply(reply), 32)
        except Unreadable:
            return []

    def _prompt(self, context: RequestContext) -> int:
        """Return the tokens of the prompt without the judge's findings.

        Rendered once for each kind, on the reference or not.
        """
        if context.kind == "repair":  # cannot be rendered without a verdict; it says what a request for code says
            context = replace(context, kind="code")
        key = (context.kind, context.parent is None)
        if key not in self._prompts:
            built = requests.build(context)
            self._prompts[key] = _tokens("".join(message["content"] for message in built.messages))
        return self._prompts[key]


def cost_usd(recording: Recording) -> float:
    """Return the cost of every reply of a recording at the prices of `PRICED_AS`."""
    pairs: list[tuple[int, int]] = []
    for place in [recording.root, *recording.candidates.values()]:
        pairs += [(asked.prompt_tokens, asked.reply_tokens) for asked in place.asked]
        ideas = [idea for asked in place.asked for idea in asked.ideas]
        codes = [*place.plain, *(code for idea in ideas for code in idea.codes)]
        pairs += [(code.prompt_tokens, code.reply_tokens) for code in codes]
        if place.repair is not None:
            pairs.append((place.repair.prompt_tokens, place.repair.reply_tokens))
    return sum(price(prompt, reply) for prompt, reply in pairs)


def price(prompt_tokens: int, reply_tokens: int) -> float:
    """Return the US dollars for one call at the prices of `PRICED_AS`."""
    cost = _PRICES.cost(PRICED_AS, prompt_tokens, reply_tokens)
    assert cost is not None, f"prices.toml has no {PRICED_AS}"
    return cost


def _tokens(text: str) -> int:
    return -(-len(text) // CHARACTERS_PER_TOKEN)


def _model_reply(reply: PoolReply) -> ModelReply:
    return ModelReply(reply.reply, reply.model, reply.finish_reason, None, None, None, 0.0)
