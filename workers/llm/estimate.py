"""Estimate the cost of a search before it begins.

Its policy is played on assumed outcomes, its real prompts are weighed, its models are priced; the worst is a bound on
all outcomes. Reads the price file, and nothing else.

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
from warpsmith.kernels_db.job.sweep_documents import SWEEP_S
from warpsmith.kernels_db.spec.op import Op, Target
from warpsmith.kernels_db.spec.resolve import resolve_workload
from warpsmith.workers.llm.base import CHARS_PER_TOKEN, RequestKind, approximate_tokens
from warpsmith.workers.llm.bound import Figures, bound
from warpsmith.workers.llm.forecast import CallSize, Play
from warpsmith.workers.llm.prompt import candidates, exemplars, facts, logs, requests
from warpsmith.workers.llm.providers.cost import Prices
from warpsmith.workers.llm.providers.naming import model_names
from warpsmith.workers.llm.providers.shares import Choice, parse_choices, serving
from warpsmith.workers.llm.reply import parsing
from warpsmith.workers.search.budget import parse_budget
from warpsmith.workers.search.policy import Policy, parse_policy
from warpsmith.workers.settings import Settings

IDEA_TOKENS = 300
CODE_TOKENS = 1_150
LESSONS_TOKENS = 600
"""Expected replies: an idea, a candidate, a reflection.

The first two as the pools that ship with Warpsmith have them: 1,130 and 4,500 characters on average.
"""

SOURCE_CHARS, LEDGER_LINES, CAUSE_CHARS = 4_500, 20, 180
"""Stand-ins for text that only the search will write: a candidate, the lines of the ledger and their causes."""

WORST_MEASURED_CHARS = 16_000
"""More than any verdict takes in a prompt: its workloads, kernels, profile and inputs that were wrong."""

WORST_EXEMPLAR_CHARS = exemplars.MOST_TOKENS_WITH_CODE * CHARS_PER_TOKEN + 2_000
"""Of exemplars with the words around them; two that are shown without code are shorter."""

WORST_TITLE_CHARS = 120
"""Of an idea's title in the ledger (`requests.ledger_lines`)."""

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
class Forecast(Figures):
    """A play, or a bound, in figures; of a bound each by itself.

    `complete` is False where the search is too large to be played to its end: it may take more. A bound is complete.
    """

    ends: str
    complete: bool


@dataclass(frozen=True)
class Estimate:
    """The expected course, the worst case that no search exceeds, the models without a price, and the assumptions.

    sweep_seconds: device seconds that sweeps of screenings may hold at worst, but for the timings under way when a
    limit is reached.
    """

    expected: Forecast
    worst: Forecast
    sweep_seconds: float
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
    seeds: int = 0,
) -> Estimate:
    """Estimate a search of these documents, whose tree starts with at most `seeds` stored kernels.

    Raises SpecError, and PriceError for an unusable price file.
    """
    read = parse_policy(policy)
    ideas = int(getattr(read, "ideas", 1))
    prices = Prices.load(settings.model_prices)
    choices = parse_choices(model) if model["provider"] == "openai" else ()
    limits = parse_budget(budget)
    usual, largest = (
        {
            kind: _priced(
                CallSize(
                    _prompt_tokens(kind, op, target, language, ideas, settings if worst else None, read),
                    settings.model_max_tokens if worst else _reply_tokens(kind, ideas),
                    None,
                ),
                kind,
                choices,
                prices,
                settings,
                worst=worst,
            )
            for kind in get_args(RequestKind)
        }
        for worst in (False, True)
    )
    worst = _bounded(bound(read, limits, largest, seeds, _together(choices, settings)))
    sweeps = [SWEEP_S * worst.candidates, limits.sweep_seconds, limits.gpu_seconds]
    return Estimate(
        expected=_figures(Play(read, limits, usual).run()),
        worst=worst,
        sweep_seconds=min(most for most in sweeps if most is not None),
        unpriced=unpriced(model, prices, settings),
        assumptions=_assumptions(settings),
    )


def unpriced(model: Mapping[str, Any], prices: Prices, settings: Settings) -> tuple[str, ...]:
    """Return the models of a document whose price is not known.

    None for a provider that costs nothing.
    """
    if model["provider"] != "openai":
        return ()
    return tuple(name for name in model_names(model, settings) if prices.price(name) is None)


def _figures(play: Play) -> Forecast:
    known = all(play.sizes[kind].cost_usd is not None for kind in play.calls)
    return Forecast(
        model_calls=play.spend.model_calls,
        calls=dict(sorted(play.calls.items())),
        candidates=play.spend.candidates,
        tokens=play.prompt_tokens + play.completion_tokens,
        prompt_tokens=play.prompt_tokens,
        completion_tokens=play.completion_tokens,
        cost_usd=play.spend.cost_usd if known else None,
        ends=play.reason,
        complete=play.complete,
    )


def _bounded(found: Figures) -> Forecast:
    return Forecast(**vars(found), ends="the policy, or the budget, allows no more", complete=True)


def _together(choices: Sequence[Choice], settings: Settings) -> int | None:
    """Return the calls that a host may have under way; None in agent mode, where answers wait for their steps."""
    most = max(settings.model_concurrency, *settings.model_concurrency_by_endpoint.values(), 0)
    return most * len({choice.base_url for choice in choices}) or None


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


def _prompt_tokens(
    kind: RequestKind,
    op: Op,
    target: Target,
    language: str,
    ideas: int,
    settings: Settings | None,
    policy: Policy,
) -> int:
    """Count the tokens of a rendered request; with `settings` of the largest that there is.

    That is a re-ask, with the reply that could not be read, on nodes as large as a reply may be.
    """
    context = _context(kind, op, target, language, ideas)
    if settings is not None:
        context = _largest(context, settings.model_max_tokens * CHARS_PER_TOKEN, policy)
    chars = sum(len(message["content"]) for message in requests.build(context).messages)
    if settings is not None:
        chars += facts.MAX_GENERATED_CHARS + 3 * WORST_MEASURED_CHARS
        chars += WORST_EXEMPLAR_CHARS if settings.exemplars else 0
        chars += sum(len(node.source) for node in (context.best, context.other) if node is not None)  # or what differs
    return approximate_tokens(chars)


def _context(kind: RequestKind, op: Op, target: Target, language: str, ideas: int) -> requests.RequestContext:
    example = prompts.example(language)
    source = (example * (1 + SOURCE_CHARS // max(len(example), 1)))[:SOURCE_CHARS]
    parent = candidates.NodeFacts(1, IDEA, source, "0" * 64, None)
    asks_ideas = kind in ("ideate", "reflect")
    return requests.RequestContext(
        kind=kind,
        attempt_id="",
        op=op,
        target=target,
        language=language,
        workloads=tuple(resolve_workload(op, workload) for workload in op.workloads_for(target)),
        baselines=None,
        parent=parent,
        best=candidates.NodeFacts(2, IDEA, source, "1" * 64, None) if asks_ideas else None,
        ledger=tuple(
            requests.LedgerEntry(
                seq, IDEA["technique"], f"{IDEA['title']} {seq}", "rejected at screen", "c" * CAUSE_CHARS
            )
            for seq in range(1, LEDGER_LINES + 1)
        ),
        ideas=ideas,
        idea=None if asks_ideas else IDEA,
        failing=candidates.NodeFacts(3, IDEA, source, "2" * 64, _rejected("l" * 400)) if kind == "repair" else None,
    )


def _largest(context: requests.RequestContext, reply_chars: int, policy: Policy) -> requests.RequestContext:
    """Return `context` with every part as long as it may be, asked again after an unreadable reply.

    `reply_chars`: of the longest reply; neither a source nor an idea is longer. A line of the ledger has the variants
    of its idea. The idea asks for every form that a request may show.
    """
    source = "x" * min(reply_chars, parsing.MAX_SOURCE_CHARS)
    longest = min(reply_chars // (len(IDEA) - 1), parsing.MAX_FIELD_CHARS)
    field = "bulk copies, launch_pdl ".ljust(longest, "i")[:longest]
    idea = {name: IDEA[name] if name == "technique" else field for name in IDEA}

    def grown(node: candidates.NodeFacts | None) -> candidates.NodeFacts | None:
        return node and replace(node, idea=idea, source=source)

    failing = grown(context.failing)
    variants = int(getattr(policy, "codes", 1))
    cause = "c" * requests.MAX_CAUSE_CHARS
    context = replace(
        context,
        parent=grown(context.parent),
        best=grown(context.best),
        other=grown(context.best and replace(context.best, seq=4)),
        leads_on=("w" * WORST_TITLE_CHARS,),
        idea=context.idea and idea,
        failing=failing and replace(failing, verdict=_rejected("l" * logs.MAX_LOG_CHARS)),
        ledger=tuple(
            requests.LedgerEntry(
                seq, IDEA["technique"], f"{seq} {'t' * WORST_TITLE_CHARS}", "rejected at screen", cause
            )
            for seq in range(requests.MAX_LEDGER_LINES)
            for _ in range(variants)
        ),
        lessons=tuple(
            parsing.Lesson(lesson="l" * parsing.MAX_LESSON_CHARS, evidence="e" * parsing.MAX_LESSON_CHARS)
            for _ in range(parsing.MAX_LESSONS)
        ),
    )
    return requests.reask(context, "x" * requests.MAX_ECHO_CHARS, "p" * 1_000)


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
        f"worst: every call that the policy may make under the budget, duplicates, empty and unreadable replies among "
        f"them, on the longest prompts with replies of {settings.model_max_tokens} tokens; no search exceeds its calls "
        "and candidates",
        "limits of time and of the device are not played; limits of tokens and of money can be exceeded by the calls "
        "under way when they are reached: at worst those of one host's model workers, in agent mode all",
        f"device seconds for sweeps: {SWEEP_S:g} for each candidate of the worst case, or the budget's limit; "
        "those under way at the limit end with the timing that they are at; beside them, verifications of further "
        "configurations, on what the limit leaves",
        "not in it: what a person adds, who adds ideas, pins nodes, raises the budget or resumes a search that paused",
    )


def one_line(found: Estimate) -> str:
    """Write the estimate in a line, for people."""
    expected, worst = found.expected, found.worst
    least = "" if worst.complete else "more than "
    price = f"; no price for {', '.join(found.unpriced)}" if found.unpriced else ""
    return (
        f"expected {expected.model_calls:,} calls, {expected.tokens:,} tokens, {dollars(expected.cost_usd)}; "
        f"at worst {least}{worst.model_calls:,} calls, {worst.tokens:,} tokens, {dollars(worst.cost_usd)}{price}; "
        f"at most {found.sweep_seconds:,.0f} device seconds for sweeps of screenings"
    )


def dollars(cost: float | None) -> str:
    """Write a cost in US dollars, or that it is not known."""
    return "cost unknown" if cost is None else f"${cost:,.2f}"
