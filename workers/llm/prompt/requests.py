"""Build the request of a step from its facts: messages and identity. Pure."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from warpsmith import prompts
from warpsmith.kernels_db.job.documents import ResolvedWorkload, Verdict
from warpsmith.kernels_db.job.sweep_documents import SWEEP_S, describe_sweep
from warpsmith.kernels_db.runtime.flags import CPP_FLAGS, CUDA_FLAGS
from warpsmith.kernels_db.spec.op import Op, Target
from warpsmith.kernels_db.spec.resolve import LIBRARY_CALLS
from warpsmith.kernels_db.store.exemplar import Exemplar
from warpsmith.kernels_db.store.pool_file import summary
from warpsmith.kernels_db.store.structure import is_known, structure
from warpsmith.workers.llm.base import ModelRequest, RequestKind, approximate_tokens
from warpsmith.workers.llm.prompt import facts
from warpsmith.workers.llm.prompt.candidates import NodeFacts, shown_beside, shown_change, shown_node
from warpsmith.workers.llm.prompt.device import device_lines, version_lines
from warpsmith.workers.llm.prompt.exemplars import exemplars
from warpsmith.workers.llm.prompt.facts import microseconds, significant
from warpsmith.workers.llm.prompt.feedback import cause, feedback, outcome
from warpsmith.workers.llm.prompt.forms import shows_copies, shows_dependent_launches
from warpsmith.workers.llm.prompt.kernel_words import list_resources
from warpsmith.workers.llm.prompt.searched_inputs import known_inputs
from warpsmith.workers.llm.reply.parsing import MAX_LESSONS, Lesson
from warpsmith.workers.llm.reply.techniques import TECHNIQUES
from warpsmith.workers.text import middle_cut, one_line

MAX_LEDGER_LINES = 80
MAX_LEDGER_TIMES = 4  # and as many choices of Triton's tuner
MAX_REASON_CHARS = 140
MAX_SWEEP_CHARS = 160  # so that resources keep their place beside it
MAX_CAUSE_CHARS = 340  # with times, a sweep and resources
MAX_ECHO_CHARS = 6_000

MOST_TOKENS_WITH_AN_EXEMPLAR = 6_000
"""Tokens of a request for code up to which the code of an exemplar is shown in it."""


@dataclass(frozen=True)
class LedgerEntry:
    """One node that was tried, for the one-line ledger.

    `outcome` as `feedback.outcome` gives it. `cause` is one line, or empty.
    """

    seq: int
    technique: str
    title: str
    outcome: str
    cause: str


@dataclass(frozen=True)
class RequestContext:
    """All that a request is built from.

    workloads: resolved, those of the target; hold-out ones are left out of every prompt. baselines: the root's verdict
    at level `baseline`; while it travels in a bundle, that of another search of the op (`earlier`), None without one.
    parent: None where it is the root. best: the champion, None while there is none. ideate: `ideas` to ask for,
    `asked`, the number of times that ideas were asked for on this parent before, and `avoid`, techniques that may not
    be used. code: `idea` (None where the policy has no ideas), and the `variant` (from 0) of `variants` candidates that
    realise it. repair: `idea` (or None) and `failing`, the candidate with its verdict.
    reflect: what ideate has, and the `round` that the ideas are for; `lessons` that came of it go to ideate.
    Re-asks: `ordinal` from 1, the reply that could not be read and its problem. counterexamples: descriptions, newest
    first, of inputs on which earlier candidates of the op were wrong, none of a hold-out. other: a second candidate,
    for ideate one that is faster than the parent on the bench workloads `leads_on`, for code one that the idea names.
    joins: the search joins two kernels by size itself, so that no idea is spent on it. sweeps: the judge may still time
    a candidate's configurations, so that numbers may be left to it: for `sweep_s` device seconds, in which it should
    time about `sweep_timed` of them by what it timed so far; None before a sweep. exemplars: verified kernels of other
    ops, for ideate (on a restart the details of techniques take their place) and code without a parent; no part of the
    request's identity.
    """

    kind: RequestKind
    attempt_id: str
    op: Op
    target: Target
    language: str
    workloads: tuple[ResolvedWorkload, ...]
    baselines: Verdict | None
    parent: NodeFacts | None
    best: NodeFacts | None = None
    ledger: tuple[LedgerEntry, ...] = ()
    ideas: int = 1
    asked: int = 0
    avoid: tuple[str, ...] = ()
    round: int = 0
    lessons: tuple[Lesson, ...] = ()
    idea: Mapping[str, Any] | None = None
    variant: int = 0
    variants: int = 1
    failing: NodeFacts | None = None
    ordinal: int = 0
    unreadable: str | None = None
    problem: str | None = None
    counterexamples: tuple[str, ...] = ()
    other: NodeFacts | None = None
    leads_on: tuple[str, ...] = ()
    joins: bool = False
    sweeps: bool = True
    sweep_s: float = SWEEP_S
    sweep_timed: int | None = None
    exemplars: tuple[Exemplar, ...] = ()
    earlier: bool = False


def build(context: RequestContext) -> ModelRequest:
    """Build the request for `context`.

    Raises ValueError where a part that its kind needs is missing.
    """
    subject = context.idea
    if context.kind == "ideate":
        subject = _named(context.parent) if context.parent else None
    user = _user(context)
    messages = [
        {
            "role": "system",
            "content": prompts.render("system.md.j2", language=context.language, device=context.target.device),
        },
        {"role": "user", "content": user},
    ]
    if context.ordinal > 0:
        messages += _reask(context)
    return ModelRequest(
        kind=context.kind,
        identity=identity(context),
        ordinal=context.ordinal,
        messages=tuple(messages),
        summary=one_line(summary(context.kind, subject, context.variant)),
        attempt_id=context.attempt_id,
    )


def _user(context: RequestContext) -> str:
    """Render the request; the code of an exemplar is left out where it would be longer than it may."""
    fields = _KINDS[context.kind](context)
    text = prompts.render(f"{context.kind}.md.j2", **fields)
    shown = fields.get("exemplars") or []
    if any(one["source"] for one in shown) and approximate_tokens(len(text)) > MOST_TOKENS_WITH_AN_EXEMPLAR:
        fields["exemplars"] = [one | {"source": None} for one in shown]
        text = prompts.render(f"{context.kind}.md.j2", **fields)
    return text


def _named(node: NodeFacts) -> Mapping[str, Any]:
    """Return the node's idea, or a substitute where it has none."""
    return node.idea or {"title": f"code #{node.seq}", "technique": "no idea"}


def identity(context: RequestContext) -> str:
    """Compute the SHA-256 (hex) of the question without anything measured.

    The same on any machine, and for every re-ask.
    """
    document: dict[str, Any] = {
        "kind": context.kind,
        "op": context.op.semantic_digest,
        "device": context.target.device,
        "language": context.language,
        "parent": context.parent.source_digest if context.parent else None,
    }
    if context.kind == "ideate":
        document["asked"] = context.asked
    elif context.kind == "reflect":
        document |= {"asked": context.asked, "round": context.round}
    elif context.kind == "code":
        document["variant"] = context.variant
        if context.idea is not None:
            document["idea"] = idea_text(context.idea)
    else:
        document["failing"] = _need(context.failing, "failing").source_digest
    text = json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()


def idea_text(idea: Mapping[str, Any]) -> str:
    """Write an idea as one text, blanks evened out: equal texts are the same idea."""
    return "\n".join(f"{key}: {' '.join(str(idea[key]).split())}" for key in sorted(idea))


def reask(context: RequestContext, reply: str, problem: str) -> RequestContext:
    """Ask `context` again, because `reply` could not be read."""
    return replace(context, ordinal=context.ordinal + 1, unreadable=reply, problem=problem)


def _reask(context: RequestContext) -> list[dict[str, str]]:
    messages = []
    if context.unreadable and context.unreadable.strip():
        messages.append({"role": "assistant", "content": middle_cut(context.unreadable, MAX_ECHO_CHARS)})
    again = prompts.render(
        "reask.md.j2", kind=context.kind, ideas=context.ideas, problem=_need(context.problem, "problem")
    )
    return [*messages, {"role": "user", "content": again}]


def _need(value: Any, field: str) -> Any:
    if value is None:
        raise ValueError(f"{field}: found None, expected a value for this kind of request")
    return value


def _common(context: RequestContext) -> dict[str, Any]:
    """Return the op's facts for every request: entry point, shapes, tolerance, language rules."""
    op, workloads = context.op, facts.visible(context.workloads)
    found = structure(op)
    kinds = found | {"other"} if is_known(op) else frozenset()  # empty: nothing is left out
    brief = context.kind == "reflect" or (context.kind != "repair" and context.parent is not None)
    sources = [node.source for node in (context.parent, context.other, context.failing) if node is not None]
    return {
        "op": {
            "name": op.name,
            "description": op.description,
            "reference": op.reference,
            "state": [{"name": item.name, "attribute": item.attribute} for item in op.state],
            "init": list(op.init or ()),
            "is_module": bool(op.state) or op.init is not None,
            "math": op.math,
            "accuracy": op.accuracy,
            "axes": facts.axes_line(op),
            "constraints": [" ".join(constraint.split()) for constraint in op.constraints],
            "has_float32": any(
                item["dtype"] == "float32"
                for workload in workloads
                for item in (*workload["inputs"], *workload["outputs"])
            ),
        },
        "device": context.target.device,
        "has_isa": bool(context.baselines and context.baselines["device"].get("isa")),
        "arch": context.target.arch,
        "language": context.language,
        "library_calls": list(LIBRARY_CALLS) if op.library_calls else [],
        "entry_point": facts.entry_point(workloads[0]),
        "parameters": facts.parameter_lines(op, workloads),
        "workloads": facts.workload_lines(op, workloads),
        "weighted": facts.are_weighted(workloads),
        "tolerances": facts.tolerance_lines(op, workloads, context.baselines, brief=brief),
        "brief": brief,
        "for_ideas": context.kind in ("ideate", "reflect"),
        "derived_tolerance": facts.derives_tolerance(workloads),
        "counterexamples": known_inputs(context.counterexamples),
        "output_dtypes": sorted({item["dtype"] for workload in workloads for item in workload["outputs"]}),
        "flags": list(CUDA_FLAGS if context.language == "cuda" else CPP_FLAGS),
        "sweeps": context.sweeps,
        "sweep_s": f"{context.sweep_s:.3g}",
        "sweep_timed": context.sweep_timed,
        "kinds": kinds,
        "products": not kinds or bool(kinds & {"product", "convolution"}),
        "orders": "order" in found,
        "copies": shows_copies(context.target, context.language, context.idea, *sources),
        "dependent": shows_dependent_launches(context.target, context.idea),
    }


def _measured(context: RequestContext) -> dict[str, Any]:
    baselines = context.baselines
    return {
        "measured": baselines is not None,
        "earlier": context.earlier,
        "baseline_names": list(context.op.objective.baselines),
        "facts": [] if baselines is None else _device_facts(baselines, context),
        "baselines": facts.baseline_lines(baselines, context.workloads),
    }


def _device_facts(baselines: Verdict, context: RequestContext) -> list[str]:
    return [
        *device_lines(baselines["device"], context.workloads),
        *version_lines(baselines["versions"], context.language),
    ]


def _history(context: RequestContext) -> dict[str, Any]:
    """Return the search's findings so far, for the requests that decide how it goes on.

    Of candidates only the kernel to build on is shown whole. What it was expected to gain is left out of its idea: what
    it gained is there. The best and another one are shown by their ideas and by what differs from that kernel.
    """
    parent, best, other = context.parent, context.best, context.other
    shows_best = best is not None and not (parent and best.seq == parent.seq)
    shown = {node.seq for node in (parent, best) if node is not None}
    return {
        **_common(context),
        **_measured(context),
        "parent": None if parent is None else shown_node(parent, context.workloads),
        "best": shown_beside(best, parent, context.workloads) if best is not None and shows_best else None,
        "other": None
        if other is None or parent is None
        else shown_change(other, parent, is_shown=other.seq in shown) | {"leads_on": list(context.leads_on)},
        "parent_is_best": bool(best and parent and best.seq == parent.seq),
        "ledger": ledger_lines(context.ledger, shown),
        "joins": context.joins,
    }


def _reflect(context: RequestContext) -> dict[str, Any]:
    return {**_history(context), "lessons": MAX_LESSONS}


def most_exemplars(context: RequestContext) -> int:
    """Return how many exemplars the request shows: none on a kernel or for a restart, two for ideas, one for code."""
    if context.parent is not None:
        return 0
    if context.kind == "ideate":
        return 0 if context.avoid else 2
    return 1 if context.kind == "code" else 0


def _ideate(context: RequestContext) -> dict[str, Any]:
    return {
        **_history(context),
        "generated": facts.generated_code(context.baselines) if context.parent is None else None,
        "lessons": list(context.lessons),
        "architecture": prompts.architecture(context.target.device, context.target.arch),
        "plays": [play for play in prompts.playbook() if play.technique not in context.avoid],
        "avoid": list(context.avoid),
        "exemplars": exemplars(context.exemplars[: most_exemplars(context)], with_code=False),
        "ideas": context.ideas,
        "techniques": [name for name in TECHNIQUES if name not in context.avoid],
    }


def _code(context: RequestContext) -> dict[str, Any]:
    parent, other = context.parent, context.other
    return {
        **_common(context),
        **_measured(context),
        "idea": context.idea if parent is None else _without_promises(context.idea),
        "play": _play(context.idea) if parent is None else None,
        "exemplars": exemplars(context.exemplars[: most_exemplars(context)], with_code=True),
        "generated": facts.generated_code(context.baselines) if context.parent is None else None,
        "parent": None if parent is None else shown_node(parent, context.workloads),
        "other": None if other is None or parent is None else shown_node(other, context.workloads),
        "architecture": prompts.architecture(context.target.device, context.target.arch),
        "example": prompts.example(context.language),
        "variant": context.variant,
        "variants": context.variants,
    }


def _without_promises(idea: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
    """Leave out what an idea is expected to gain: who writes a kernel anew from another is shown what that reaches."""
    return None if idea is None else {key: value for key, value in idea.items() if key != "expected_gain"}


def _play(idea: Mapping[str, Any] | None) -> prompts.Play | None:
    """Return the playbook's text on an idea's technique.

    None where there is no idea, or it names no technique.
    """
    technique = idea.get("technique") if idea else None
    return next((play for play in prompts.playbook() if play.technique == technique), None)


def _repair(context: RequestContext) -> dict[str, Any]:
    failing = _need(context.failing, "failing")
    verdict = _need(failing.verdict, "failing.verdict")
    return {
        **_common(context),
        **_measured(context),
        "idea": context.idea,
        "source": failing.source,
        "cause": cause(verdict, context.workloads),
        "feedback": feedback(verdict, context.workloads),
    }


_KINDS = {"reflect": _reflect, "ideate": _ideate, "code": _code, "repair": _repair}


def ledger_lines(ledger: tuple[LedgerEntry, ...], shown: Collection[int] = ()) -> list[str]:
    """Write one line for each idea that was tried, its variants together, oldest first.

    The latest where there are too many. `shown`: candidates whose times the request has above.
    """
    groups: dict[tuple[str, str], list[LedgerEntry]] = {}
    for entry in sorted(ledger, key=lambda entry: entry.seq):
        groups.setdefault((entry.technique, entry.title), []).append(entry)
    lines = [
        f"[{one_line(technique, 40)}] {one_line(title, 120)}: {' | '.join(_ended(entry, shown) for entry in entries)}"
        for (technique, title), entries in groups.items()
    ]
    left_out = len(lines) - MAX_LEDGER_LINES
    return lines if left_out <= 0 else [f"({left_out} earlier ideas left out)", *lines[left_out:]]


def _ended(entry: LedgerEntry, shown: Collection[int]) -> str:
    if entry.seq in shown and entry.cause:
        return f"{entry.outcome} (#{entry.seq}, above)"
    return f"{entry.outcome} ({one_line(entry.cause, MAX_CAUSE_CHARS)})" if entry.cause else entry.outcome


def ledger_entry(
    *,
    seq: int,
    idea: Mapping[str, Any] | None,
    verdict: str | None,
    gate: str | None,
    score: float | None,
    reason: str | None,
    ci_low: float | None = None,
    ci_high: float | None = None,
    times: Sequence[tuple[str, float, float]] = (),
    built: Mapping[str, Any] | None = None,
    sweep: Mapping[str, Any] | None = None,
    tuned: Sequence[str] = (),
) -> LedgerEntry:
    """Build the entry of a node, from the columns of its row.

    A right candidate needs no reason: its interval says more, and its `times`, which are a bench workload, microseconds
    and the speed-up over the fastest baseline each, the `sweep` over its tunables, the resources of its kernels, by the
    compile report `built`, and last, as the most of it can be, what Triton's tuner chose (`tuned`).
    """
    told = one_line(reason or "", MAX_REASON_CHARS)
    if verdict == "accepted" and score is not None:
        spans = [] if ci_low is None or ci_high is None else [f"{significant(ci_low)} to {significant(ci_high)}"]
        shown = [
            f"{name} {microseconds(time)}, {significant(ratio)}x" for name, time, ratio in times[:MAX_LEDGER_TIMES]
        ]
        swept = [] if sweep is None else [describe_sweep(sweep, longest=MAX_SWEEP_CHARS)]
        chosen = list(tuned[:MAX_LEDGER_TIMES])
        told = "; ".join(spans + shown + swept + list_resources(built or {}) + chosen)
    return LedgerEntry(
        seq=seq,
        technique=str(idea["technique"]) if idea else "no idea",
        title=str(idea["title"]) if idea else f"code #{seq}",
        outcome=outcome(verdict, gate, score),
        cause=told,
    )
