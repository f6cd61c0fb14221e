"""A search told as lines: pure functions from its events to text."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from warpsmith.service.client.progress import LONGEST_REASON, LONGEST_TITLE, shorten
from warpsmith.service.documents.figures import BASELINE_NAMES, microseconds, ratio, repaired
from warpsmith.service.documents.searches import EventDocument


class Narrator:
    """Tells a search, one event after another. Feed it from the first event on: it remembers the titles of nodes."""

    def __init__(self) -> None:
        self._titles: dict[str, str] = {}

    def line(self, event: EventDocument) -> str | None:
        """One line, or None for an event that says nothing to a person."""
        kind, payload = event.type, event.payload
        if kind == "node.created" and event.node_id is not None:
            self._titles[event.node_id] = str(payload.get("title") or "")
        tell = _TELLERS.get(kind, _tell_search if kind.startswith("search.") else None)
        return None if tell is None else tell(event, self._titles.get(event.node_id or "", ""))


def _tell_search(event: EventDocument, _: str) -> str:
    what, reason = event.type.removeprefix("search."), _reason(event)
    return f"search {what}: {reason}" if reason else f"search {what}"


def _tell_branch(event: EventDocument, _: str) -> str:
    return f"search branched from #{event.payload.get('from_seq')} of {event.payload.get('from_search')}"


def _tell_round(event: EventDocument, _: str) -> str:
    return f"round {event.payload.get('round', '?')}"


def _tell_verdict(event: EventDocument, title: str) -> str:
    payload = event.payload
    if payload.get("seq") == 0:
        if payload.get("verdict") != "accepted":
            return f"  the reference is {payload.get('verdict')}: {_reason(event)}"
        times = ", ".join(f"{name} {_times(times)}" for name, times in payload.get("time_us", {}).items() if times)
        return f"  baselines: {times}"
    verified = "verified: " if event.type == "node.verified" else ""
    if payload.get("verdict") == "accepted":
        best = ", the best so far" if payload.get("best") else ""
        outcome = f"accepted {ratio(payload.get('score'), payload.get('ci95'))}{best}"
    else:
        after = repaired(payload.get("repairs", 0))
        outcome = f"{payload.get('verdict')} at {payload.get('gate')}{after} ({_reason(event)})"
    return f"  #{payload.get('seq')} {verified}{outcome}: {_named(title, payload.get('technique'))}"


def _tell_closed(event: EventDocument, title: str) -> str:
    return f"  #{event.payload.get('seq')} closed ({_reason(event)}): {_named(title, None)}"


def _tell_kept(event: EventDocument, _: str) -> str:
    return f"#{event.payload.get('seq')} is kept as kernel {event.payload.get('kernel_id')}"


def _tell_deferred(event: EventDocument, _: str) -> str:
    return f"  #{event.payload.get('seq')} waits for the model: {_reason(event)}"


def _tell_expired(event: EventDocument, _: str) -> str:
    payload = event.payload
    return f"  #{payload.get('seq')} a worker was lost; its step ({payload.get('kind')}) goes back to the queue"


def _tell_failed(event: EventDocument, _: str) -> str | None:
    # A code step that fails closes its node, and that is told.
    kind = event.payload.get("kind")
    return None if kind == "code" else f"  #{event.payload.get('seq')} the step {kind} failed: {_reason(event)}"


def _tell_ask(event: EventDocument, _: str) -> str | None:
    if event.payload.get("replaces"):
        return None  # told with the one that expired
    return f"  #{event.payload.get('seq')} asks for an answer: warpsmith ask {event.payload.get('ask_id')}"


def _tell_ask_expired(event: EventDocument, _: str) -> str:
    payload = event.payload
    again = f"it is asked again: warpsmith ask {payload.get('replaced_by')}"
    return f"  #{payload.get('seq')} nobody answered {payload.get('ask_id')} in time; {again}"


def _tell_seed(event: EventDocument, _: str) -> str:
    payload = event.payload
    kernel = f"kernel {payload.get('kernel_id')} of {shorten(str(payload.get('op')), LONGEST_TITLE)}"
    return f"  #{payload.get('seq')} a stored kernel to start from: {kernel}"


def _tell_idea(event: EventDocument, _: str) -> str:
    payload = event.payload
    title = _named(str(payload.get("title") or ""), payload.get("technique"))
    return f"  #{payload.get('seq')} an idea of {_who(event)}: {title}"


def _tell_mark(event: EventDocument, title: str) -> str:
    done = event.type.removeprefix("node.")
    return f"  #{event.payload.get('seq')} {done} by {_who(event)}: {_named(title, None)}"


def _tell_budget(event: EventDocument, _: str) -> str:
    after = event.payload.get("after") or {}
    limits = ", ".join(f"{name} {limit:g}" for name, limit in after.items()) or "no limits"
    return f"budget changed by {_who(event)}: {limits}"


def _tell_unjudged(event: EventDocument, title: str) -> str:
    reason = _reason(event)
    return f"  #{event.payload.get('seq')} not judged by its bundle's host: {_named(title, None)}: {reason}"


def _tell_bundle(event: EventDocument, _: str) -> str:
    payload = event.payload
    done = "left in" if event.type == "bundle.created" else "returned from"
    if payload.get("then") == "fail":
        done = "given up in"
    return f"  {payload.get('jobs')} judge steps {done} bundle {payload.get('bundle_id')}"


_TELLERS: dict[str, Callable[[EventDocument, str], str | None]] = {
    "round.started": _tell_round,
    "node.judged": _tell_verdict,
    "node.verified": _tell_verdict,
    "node.closed": _tell_closed,
    "kernel.kept": _tell_kept,
    "idea.added": _tell_idea,
    "node.pinned": _tell_mark,
    "node.unpinned": _tell_mark,
    "node.banned": _tell_mark,
    "node.unbanned": _tell_mark,
    "budget.changed": _tell_budget,
    "attempt.deferred": _tell_deferred,
    "attempt.expired": _tell_expired,
    "attempt.failed": _tell_failed,
    "ask.opened": _tell_ask,
    "ask.expired": _tell_ask_expired,
    "node.seeded": _tell_seed,
    "search.branched": _tell_branch,
    "bundle.created": _tell_bundle,
    "bundle.dropped": _tell_bundle,
    "bundle.unjudged": _tell_unjudged,
}


def _reason(event: EventDocument) -> str:
    return shorten(str(event.payload.get("reason") or event.payload.get("error") or ""), LONGEST_REASON)


def _who(event: EventDocument) -> str:
    return shorten(str(event.payload.get("by") or "a person"), LONGEST_TITLE)


def _named(title: str, technique: str | None) -> str:
    short = shorten(title, LONGEST_TITLE)
    return f"{short} ({technique})" if technique else short


def _times(times: Mapping[str, float]) -> str:
    return ", ".join(f"{BASELINE_NAMES.get(name, name)} {microseconds(value)} us" for name, value in times.items())
