"""Lines of text for the events of a search: pure functions."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from warpsmith.service.client.progress import LONGEST_REASON, LONGEST_TITLE, shorten
from warpsmith.service.documents.figures import (
    BASELINE_NAMES,
    format_attack,
    format_microseconds,
    format_ratio,
    format_repairs,
)
from warpsmith.service.documents.searches import EventDocument


class Narrator:
    """Describes the events of a search, one after another.

    Feed it from the first event on: it remembers the titles of nodes.
    """

    def __init__(self) -> None:
        self._titles: dict[str, str] = {}

    def line(self, event: EventDocument) -> str | None:
        """Describe an event in one line; None for an event without news for a person."""
        kind, payload = event.type, event.payload
        if kind == "node.created" and event.node_id is not None:
            self._titles[event.node_id] = str(payload.get("title") or "")
        describe = _DESCRIBERS.get(kind, _describe_search if kind.startswith("search.") else None)
        return None if describe is None else describe(event, self._titles.get(event.node_id or "", ""))


def _describe_search(event: EventDocument, _: str) -> str:
    what, reason = event.type.removeprefix("search."), _get_reason(event)
    return f"search {what}: {reason}" if reason else f"search {what}"


def _describe_branch(event: EventDocument, _: str) -> str:
    return f"search branched from #{event.payload.get('from_seq')} of {event.payload.get('from_search')}"


def _describe_round(event: EventDocument, _: str) -> str:
    return f"round {event.payload.get('round', '?')}"


def _describe_verdict(event: EventDocument, title: str) -> str:
    payload = event.payload
    if payload.get("seq") == 0:
        if payload.get("verdict") != "accepted":
            return f"  the reference is {payload.get('verdict')}: {_get_reason(event)}"
        times = ", ".join(
            f"{name} {_format_times(times)}" for name, times in payload.get("time_us", {}).items() if times
        )
        return f"  baselines: {times}"
    verified = "verified: " if event.type == "node.verified" else ""
    if payload.get("verdict") == "accepted":
        best = ", the best so far" if payload.get("best") else ""
        searched = f"; {shorten(format_attack(payload['attack']), LONGEST_REASON)}" if payload.get("attack") else ""
        outcome = f"accepted {format_ratio(payload.get('score'), payload.get('ci95'))}{best}{searched}"
    else:
        after = format_repairs(payload.get("repairs", 0))
        outcome = f"{payload.get('verdict')} at {payload.get('gate')}{after} ({_get_reason(event)})"
    return f"  #{payload.get('seq')} {verified}{outcome}: {_format_title(title, payload.get('technique'))}"


def _describe_closing(event: EventDocument, title: str) -> str:
    return f"  #{event.payload.get('seq')} closed ({_get_reason(event)}): {_format_title(title, None)}"


def _describe_kept(event: EventDocument, _: str) -> str:
    return f"#{event.payload.get('seq')} is kept as kernel {event.payload.get('kernel_id')}"


def _describe_deferral(event: EventDocument, _: str) -> str:
    return f"  #{event.payload.get('seq')} waits for the model: {_get_reason(event)}"


def _describe_expiry(event: EventDocument, _: str) -> str:
    payload = event.payload
    return f"  #{payload.get('seq')} a worker was lost; its step ({payload.get('kind')}) goes back to the queue"


def _describe_failure(event: EventDocument, _: str) -> str | None:
    # A code step that fails closes its node, which has a line of its own.
    kind = event.payload.get("kind")
    return None if kind == "code" else f"  #{event.payload.get('seq')} the step {kind} failed: {_get_reason(event)}"


def _describe_ask(event: EventDocument, _: str) -> str | None:
    if event.payload.get("replaces"):
        return None  # the line of the expired one names it
    return f"  #{event.payload.get('seq')} asks for an answer: warpsmith ask {event.payload.get('ask_id')}"


def _describe_ask_expiry(event: EventDocument, _: str) -> str:
    payload = event.payload
    again = f"it is asked again: warpsmith ask {payload.get('replaced_by')}"
    return f"  #{payload.get('seq')} nobody answered {payload.get('ask_id')} in time; {again}"


def _describe_seed(event: EventDocument, _: str) -> str:
    payload = event.payload
    kernel = f"kernel {payload.get('kernel_id')} of {shorten(str(payload.get('op')), LONGEST_TITLE)}"
    return f"  #{payload.get('seq')} a stored kernel to start from: {kernel}"


def _describe_idea(event: EventDocument, _: str) -> str:
    payload = event.payload
    title = _format_title(str(payload.get("title") or ""), payload.get("technique"))
    return f"  #{payload.get('seq')} an idea of {_get_author(event)}: {title}"


def _describe_mark(event: EventDocument, title: str) -> str:
    done = event.type.removeprefix("node.")
    return f"  #{event.payload.get('seq')} {done} by {_get_author(event)}: {_format_title(title, None)}"


def _describe_budget(event: EventDocument, _: str) -> str:
    after = event.payload.get("after") or {}
    limits = ", ".join(f"{name} {limit:g}" for name, limit in after.items()) or "no limits"
    return f"budget changed by {_get_author(event)}: {limits}"


def _describe_unjudged(event: EventDocument, title: str) -> str:
    reason = _get_reason(event)
    return f"  #{event.payload.get('seq')} not judged by its bundle's host: {_format_title(title, None)}: {reason}"


def _describe_try(event: EventDocument, title: str) -> str:
    payload = event.payload
    score = f" {float(payload['score']):.2f}x" if payload.get("score") else ""
    outcome = f"{payload.get('level')} {payload.get('verdict') or 'without a verdict'}{score}"
    return f"  #{payload.get('seq')} tried: {outcome}: {_format_title(title, None)}"


def _describe_bundle(event: EventDocument, _: str) -> str:
    payload = event.payload
    done = "left in" if event.type == "bundle.created" else "returned from"
    if payload.get("then") == "fail":
        done = "given up in"
    return f"  {payload.get('jobs')} judge steps {done} bundle {payload.get('bundle_id')}"


_DESCRIBERS: dict[str, Callable[[EventDocument, str], str | None]] = {
    "round.started": _describe_round,
    "node.judged": _describe_verdict,
    "node.verified": _describe_verdict,
    "node.closed": _describe_closing,
    "kernel.kept": _describe_kept,
    "idea.added": _describe_idea,
    "node.pinned": _describe_mark,
    "node.unpinned": _describe_mark,
    "node.banned": _describe_mark,
    "node.unbanned": _describe_mark,
    "node.tried": _describe_try,
    "budget.changed": _describe_budget,
    "attempt.deferred": _describe_deferral,
    "attempt.expired": _describe_expiry,
    "attempt.failed": _describe_failure,
    "ask.opened": _describe_ask,
    "ask.expired": _describe_ask_expiry,
    "node.seeded": _describe_seed,
    "search.branched": _describe_branch,
    "bundle.created": _describe_bundle,
    "bundle.dropped": _describe_bundle,
    "bundle.unjudged": _describe_unjudged,
}


def _get_reason(event: EventDocument) -> str:
    return shorten(str(event.payload.get("reason") or event.payload.get("error") or ""), LONGEST_REASON)


def _get_author(event: EventDocument) -> str:
    return shorten(str(event.payload.get("by") or "a person"), LONGEST_TITLE)


def _format_title(title: str, technique: str | None) -> str:
    short = shorten(title, LONGEST_TITLE)
    return f"{short} ({technique})" if technique else short


def _format_times(times: Mapping[str, float]) -> str:
    return ", ".join(
        f"{BASELINE_NAMES.get(name, name)} {format_microseconds(value)} us" for name, value in times.items()
    )
