"""Estimate the cost of a search before it begins.

Its policy is played on assumed outcomes, its real prompts are weighed, its models are priced. Reads the price file, and
nothing else.

Tokens are approximated as characters divided by four: every provider counts in its own way, and code takes more tokens
than prose. Reasoning tokens, which some models bill beside the text, are in the worst case alone (`model_max_tokens` a
call).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, get_args

from warpsmith import prompts
from warpsmith.kernels_db.job.documents import Verdict
from warpsmith.kernels_db.spec.op import Op, Target
from warpsmith.kernels_db.spec.resolve import resolve_workload
from warpsmith.workers.llm.base import RequestKind
from warpsmith.workers.llm.forecast import CallSize, Play
from warpsmith.workers.llm.prompt import facts, requests
from warpsmith.workers.llm.providers.cost import Prices
from warpsmith.workers.llm.providers.shares import Choice, parse_choices, serving
from warpsmith.workers.search.budget import parse_budget
from warpsmith.workers.search.policy import parse_policy
from warpsmith.workers.settings import Settings

CHARS_PER_TOKEN = 4
IDEA_TOKENS = 300
CODE_TOKENS = 1_150
LESSONS_TOKENS = 600
"""Expected replies: an idea, a candidate, a reflection.

The first two as the pools that ship with Warpsmith have them: 1,130 and 4,500 characters on average.
"""

SOURCE_CHARS, LEDGER_LINES, CAUSE_CHARS = 4_500, 20, 180
WORST_SOURCE_CHARS, WORST_LEDGER_LINES, WORST_LOG_CHARS = 18_000, 80, 4_000
"""Stand-ins for text that only the search will write.

A candidate, the lines of the ledger (ideas and their outcomes), a compiler's log.
"""

IDEA: dict[str, str] = {
    "technique": "memory_access",
    "title": "A stand-in of the usual length for the title of an idea",
    "mechanism": "m" * 400,
    "evidence": "e" * 200,
    "expected_gain": "g" * 80,
    "risk": "r" * 120,
    "sketch": "s" * 300,
}


@dataclass(frozen=True)
class Forecast:
    """A play in figures.

    `cost_usd` is None where a price is not known. `complete` is False where the search is too large to be played to its
    end: it may take more.
    """

    model_calls: int
    calls: dict[str, int]
    candidates: int
    prompt_tokens: int
    completion_tokens: int
    cost_usd: float | None
    ends: str
    complete: bool

    @property
    def tokens(self) -> int:
        """Prompt and reply tokens together."""
        return self.prompt_tokens + self.completion_tokens


@dataclass(frozen=True)
class Estimate:
    """The expected course, the worst case, the models without a price, and the assumptions."""

    expected: Forecast
    worst: Forecast
    unpriced: tuple[str, ...]
    assumptions: tuple[str, ...]


def estimate(
    op: Op,
    target: Target,
    *,
    language: str,
    policy: Mapping[str, Any],
    budget: Mapping[str, Any],
    model: Mapping[str, Any],
    settings: Settings,
) -> Estimate:
    """Estimate a search of these documents.

    Raises SpecError, and PriceError for an unusable price file.
    """
    read = parse_policy(policy)
    ideas = int(getattr(read, "ideas", 1))
    prices = Prices.load(settings.model_prices)
    choices = parse_choices(model) if model["provider"] == "openai" else ()
    plays = []
    for worst in (False, True):
        sizes = {
            kind: CallSize(
                _prompt_tokens(kind, op, target, language, ideas, worst=worst),
                settings.model_max_tokens if worst else _reply_tokens(kind, ideas),
                None,
            )
            for kind in get_args(RequestKind)
        }
        sizes = {kind: _priced(size, kind, choices, prices, settings, worst=worst) for kind, size in sizes.items()}
        plays.append(Play(read, parse_budget(budget), sizes, worst).run())
    expected, dearest = (_figures(play) for play in plays)
    return Estimate(
        expected=expected,
        worst=_at_least(expected, dearest),
        unpriced=unpriced(model, prices, settings),
        assumptions=_assumptions(settings),
    )


def unpriced(model: Mapping[str, Any], prices: Prices, settings: Settings) -> tuple[str, ...]:
    """Return the models of a document whose price is not known.

    None for a provider that costs nothing.
    """
    if model["provider"] != "openai":
        return ()
    names = dict.fromkeys(choice.model or settings.openai_model for choice in parse_choices(model))
    return tuple(name for name in names if prices.price(name) is None)


def _figures(play: Play) -> Forecast:
    known = all(play.sizes[kind].cost_usd is not None for kind in play.calls)
    return Forecast(
        model_calls=play.spend.model_calls,
        calls=dict(sorted(play.calls.items())),
        candidates=play.spend.candidates,
        prompt_tokens=play.prompt_tokens,
        completion_tokens=play.completion_tokens,
        cost_usd=play.spend.cost_usd if known else None,
        ends=play.reason,
        complete=play.complete,
    )


def _at_least(expected: Forecast, worst: Forecast) -> Forecast:
    """Return the worst of each figure by itself.

    A budget of money ends the play of dear calls after few of them.
    """
    costs = [forecast.cost_usd for forecast in (expected, worst) if forecast.cost_usd is not None]
    return replace(
        worst,
        model_calls=max(expected.model_calls, worst.model_calls),
        calls={
            kind: max(play.calls.get(kind, 0) for play in (expected, worst)) for kind in expected.calls | worst.calls
        },
        candidates=max(expected.candidates, worst.candidates),
        prompt_tokens=max(expected.prompt_tokens, worst.prompt_tokens),
        completion_tokens=max(expected.completion_tokens, worst.completion_tokens),
        cost_usd=max(costs) if len(costs) == 2 else None,
    )


def _priced(
    size: CallSize, kind: str, choices: Sequence[Choice], prices: Prices, settings: Settings, *, worst: bool
) -> CallSize:
    """Add the cost to `size`.

    The mean over the models of its kind by their shares, in the worst case the dearest.
    """
    serve = serving(choices, kind)
    costs = [prices.cost(choice.model or settings.openai_model, size.prompt, size.completion) for choice in serve]
    known = [cost for cost in costs if cost is not None]
    if len(known) < len(costs):
        return size
    if not known:
        return CallSize(size.prompt, size.completion, 0.0)
    mean = math.fsum(cost * choice.share for cost, choice in zip(known, serve, strict=True))
    mean /= math.fsum(choice.share for choice in serve)
    return CallSize(size.prompt, size.completion, max(known) if worst else mean)


def _reply_tokens(kind: str, ideas: int) -> int:
    return {"ideate": ideas * IDEA_TOKENS, "reflect": LESSONS_TOKENS}.get(kind, CODE_TOKENS)


def _prompt_tokens(kind: RequestKind, op: Op, target: Target, language: str, ideas: int, *, worst: bool) -> int:
    """Count the tokens of a rendered request.

    In the worst case a re-ask, with the reply that could not be read.
    """
    context = _context(kind, op, target, language, ideas, worst=worst)
    if worst:
        context = requests.reask(context, "x" * requests.MAX_ECHO_CHARS, "p" * 200)
    chars = sum(len(message["content"]) for message in requests.build(context).messages)
    if worst:
        chars += facts.MAX_GENERATED_CHARS
    return -(-chars // CHARS_PER_TOKEN)


def _context(
    kind: RequestKind, op: Op, target: Target, language: str, ideas: int, *, worst: bool
) -> requests.RequestContext:
    example = prompts.example(language)
    chars, lines = (WORST_SOURCE_CHARS, WORST_LEDGER_LINES) if worst else (SOURCE_CHARS, LEDGER_LINES)
    cause = "c" * (requests.MAX_CAUSE_CHARS if worst else CAUSE_CHARS)
    source = (example * (1 + chars // max(len(example), 1)))[:chars]
    parent = requests.NodeFacts(1, IDEA, source, "0" * 64, None)
    asks_ideas = kind in ("ideate", "reflect")
    log = "l" * (WORST_LOG_CHARS if worst else 400)
    return requests.RequestContext(
        kind=kind,
        attempt_id="",
        op=op,
        target=target,
        language=language,
        workloads=tuple(resolve_workload(op, workload) for workload in op.workloads_for(target)),
        baselines=None,
        parent=parent,
        best=requests.NodeFacts(2, IDEA, source, "1" * 64, None) if asks_ideas else None,
        ledger=tuple(
            requests.LedgerEntry(seq, IDEA["technique"], f"{IDEA['title']} {seq}", "rejected at screen", cause)
            for seq in range(1, lines + 1)
        ),
        ideas=ideas,
        idea=None if asks_ideas else IDEA,
        failing=requests.NodeFacts(3, IDEA, source, "2" * 64, _rejected(log)) if kind == "repair" else None,
    )


def _rejected(log: str) -> Verdict:
    return {
        "id": "",
        "level": "screen",
        "verdict": "rejected",
        "gate": "compile",
        "reason": "does not compile",
        "op": "",
        "target": "",
        "language": None,
        "workloads": [],
        "failure": {"kind": "compile_error", "message": "does not compile", "log": log},
        "compile": None,
        "score": None,
        "score_ci95": None,
        "sandbox": {},
        "device": {},
        "versions": {},
        "fingerprint": "",
        "seconds": {},
    }


def _assumptions(settings: Settings) -> tuple[str, ...]:
    return (
        f"tokens are characters / {CHARS_PER_TOKEN} of this op's prompts, with stand-ins for candidates and ledger",
        "expected: 6 of 10 candidates right at once, 3 after one or two repairs; five rounds that improve; 1 step in "
        "20 with a second call; no reasoning tokens; no duplicates",
        f"worst: every repair and re-ask, every round improves, replies of {settings.model_max_tokens} tokens",
        "limits of time and of the device are not played; other caps can be exceeded by the calls under way when they "
        "are reached",
    )


def one_line(found: Estimate) -> str:
    """Write the estimate in a line, for people."""
    expected, worst = found.expected, found.worst
    least = "" if worst.complete else "more than "
    price = f"; no price for {', '.join(found.unpriced)}" if found.unpriced else ""
    return (
        f"expected {expected.model_calls:,} calls, {expected.tokens:,} tokens, {dollars(expected.cost_usd)}; "
        f"at worst {least}{worst.model_calls:,} calls, {worst.tokens:,} tokens, {dollars(worst.cost_usd)}{price}"
    )


def dollars(cost: float | None) -> str:
    """Write a cost in US dollars, or that it is not known."""
    return "cost unknown" if cost is None else f"${cost:,.2f}"
