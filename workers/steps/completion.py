"""Committing what a step brought: ideas, code, a verdict, or the end of its branch.

Each function returns False, and writes nothing, when the lease was lost or the search has ended. `also` runs in the
same transaction (`rows.ending`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import takewhile
from typing import Any

from sqlalchemy import bindparam, select, update
from sqlalchemy.orm import Session

from warpsmith.kernels_db.job.attack_summary import summarise_attack
from warpsmith.kernels_db.job.documents import Verdict
from warpsmith.kernels_db.job.means import limit_fraction
from warpsmith.kernels_db.store.counterexamples import keep_counterexample
from warpsmith.kernels_db.store.db import Database
from warpsmith.kernels_db.store.ids import new_id
from warpsmith.kernels_db.store.quotas import add_spending
from warpsmith.kernels_db.store.tables import AskRow, AttemptRow, ModelCallRow, NodeRow, SearchRow, VerdictRow
from warpsmith.workers.gate.normalise import normalised_digest
from warpsmith.workers.gate.tunables import specialise
from warpsmith.workers.search.joining import write_speedups
from warpsmith.workers.steps.endings import close_node, end, fail_step, pause_search, renew_best
from warpsmith.workers.steps.planting import digest_of, ideas_so_far, plan
from warpsmith.workers.steps.rows import (
    Also,
    Held,
    add_event,
    close_attempt,
    count_candidate,
    ending,
    plain,
    put_back,
    record_calls,
)
from warpsmith.workers.steps.values import EventType, ModelCall
from warpsmith.workers.steps.work import level_of
from warpsmith.workers.text import storable

UNREADABLE_IN_A_ROW = 3
"""Unreadable replies in a row, to more than one step, that pause a search for a person.

So many are the model's fault and not the request's.
"""

LATEST_CALLS = 32
"""Latest calls of a search that are checked for unreadable replies.

They are more than a step makes, even where it was tried again.
"""


_FIRST_WITH = (
    select(NodeRow.seq)
    .where(NodeRow.search_id == bindparam("search_id"), NodeRow.source_digest == bindparam("digest"))
    .order_by(NodeRow.seq)
    .limit(1)
)


def complete_ideate(
    db: Database,
    attempt_id: str,
    owner: str,
    ideas: Sequence[Mapping[str, Any]],
    calls: Iterable[ModelCall],
    now: float,
    also: Also | None = None,
) -> bool:
    """Plan nodes for each idea, as many as the step's `codes`.

    An idea that was tried before is closed at once.

    An idea has at least `technique`, `title` and `mechanism`. More than the step asked for are dropped.
    """
    with db.reading() as session:
        search_id = session.scalar(select(AttemptRow.search_id).where(AttemptRow.id == attempt_id))
        before = None if search_id is None else ideas_so_far(session, search_id)
    with ending(db, attempt_id, owner, now, also) as (session, work):
        if work is None or before is None:
            return False
        record_calls(session, work, calls, now)
        search, params = work.search, work.attempt.params
        seen = dict(ideas_so_far(session, search.id, before).first)
        for found in list(ideas)[: int(params["ideas"])]:
            idea = plain(found)
            digest = digest_of(idea)
            first = seen.setdefault(digest, search.next_seq)
            tried = first != search.next_seq
            for variant in range(1 if tried else int(params["codes"])):
                node = plan(session, search, work.node.id, idea, now, round_=work.attempt.ordinal, variant=variant)
                if tried:
                    close_node(session, search, node, f"the same idea as node #{first}", now)
        work.node.ideation = "done"
        work.node.updated_at = now
        close_attempt(work.attempt, "succeeded", now)
        return True


def complete_code(
    db: Database,
    attempt_id: str,
    owner: str,
    source: str,
    language: str,
    calls: Iterable[ModelCall],
    now: float,
    also: Also | None = None,
) -> bool:
    """Store the candidate's source; one that the search has seen closes its node as a duplicate."""
    with ending(db, attempt_id, owner, now, also) as (session, work):
        if work is None:
            return False
        record_calls(session, work, calls, now)
        search, node = work.search, work.node
        close_attempt(work.attempt, "succeeded", now)
        source = storable(source)
        digest = normalised_digest(source)
        # Nothing that this transaction has yet to write changes a digest.
        twin = session.connection().scalar(_FIRST_WITH, {"search_id": search.id, "digest": digest})
        if twin is not None:
            if node.source is None:
                node.source, node.language = source, language
            again = "the repair changed nothing: " if twin == node.seq else ""
            count_candidate(session, search, now)
            close_node(session, search, node, f"{again}duplicate of node #{twin}", now)
            return True
        node.state = "coded"
        node.source, node.source_digest, node.language = source, digest, language
        node.verdict = node.gate = node.reason = None
        node.score = node.ci_low = node.ci_high = node.limit_fraction = node.speedups = None
        node.updated_at = now
        add_event(session, search, "node.coded", now, node, repairs=node.repairs, language=language)
        return True


def complete_judge(
    db: Database, attempt_id: str, owner: str, verdict: Verdict, now: float, also: Also | None = None
) -> bool:
    """Store the verdict on the baselines, on a screening, or on a full verification.

    The baselines' verdict goes on the root.

    A reference that is not accepted fails the search with the problem. Raises ValueError where the verdict's level is
    not the step's.
    """
    with ending(db, attempt_id, owner, now, also) as (session, work):
        if work is None:
            return False
        commit_verdict(session, work, verdict, now)
        return True


def commit_verdict(session: Session, work: Held, verdict: Verdict, now: float) -> None:
    """Store the verdict on a step that is held, and its consequences.

    Values on which a verification found the candidate wrong stay with the op, for its later candidates. Raises
    ValueError as `complete_judge`.
    """
    search, node, attempt = work.search, work.node, work.attempt
    level = level_of(node, attempt)
    if verdict["level"] != level:
        raise ValueError(f"verdict.level: found {verdict['level']!r}, expected {level!r}")
    document: dict[str, Any] = plain(verdict)
    if level == "screen" and node.source is not None and (sweep := document.get("sweep")) is not None:
        # From here on the node is the configuration that the verdict is on. Its digest stays that of what was written:
        # requests are told apart by it, and a measured choice must not change what a recorded pool answers.
        node.source = specialise(node.source, sweep["chosen"])
    session.add(
        VerdictRow(
            id=new_id("vd"),
            search_id=search.id,
            node_id=node.id,
            attempt_id=attempt.id,
            level=level,
            verdict=verdict["verdict"],
            gate=verdict["gate"],
            source=node.source,
            document=document,
            created_at=now,
        )
    )
    keep_counterexample(session, search.op_id, search.target, document, now, node_id=node.id)
    close_attempt(attempt, "succeeded", now)
    held_s = document["seconds"].get("exclusive", 0.0)
    search.gpu_seconds += held_s
    search.sweep_seconds += document.get("sweep_seconds", 0.0)
    if level == "screen":
        count_candidate(session, search, now, device_seconds=held_s)
    else:
        add_spending(session, search.team, now, device_seconds=held_s)
    twin = _twin(document) if level == "screen" else None
    if twin is not None:
        again = "the repair changed nothing: " if twin == node.seq else ""
        close_node(session, search, node, f"{again}duplicate of node #{twin} (same binary)", now)
        return
    _judged(node, document, now)
    accepted = node.verdict == "accepted"
    if level == "verify":
        node.verification = "passed" if accepted else "failed"
        renew_best(session, search)
    elif level == "screen":
        _challenge(session, search, node)
    what: EventType = "node.verified" if level == "verify" else "node.judged"
    add_event(session, search, what, now, node, **_progress(search, node, document))
    if level == "baseline" and not accepted:
        end(session, search, "failed", f"the op was not admitted: {node.reason}", now, _problem(document))
    elif level == "baseline":
        _take_up_requests(session, search)


def _take_up_requests(session: Session, search: SearchRow) -> None:
    """Put back the steps that wait for answers to requests without baselines: they were away in a bundle.

    Each asks again, now with their times; its ask stays open all the while, and an answer to the former text counts.
    """
    waiting = (AttemptRow.search_id == search.id, AttemptRow.state == "waiting")
    for attempt in session.scalars(select(AttemptRow).where(*waiting)):
        put_back(attempt)


def close_branch(
    db: Database,
    attempt_id: str,
    owner: str,
    reason: str,
    calls: Iterable[ModelCall],
    now: float,
    also: Also | None = None,
) -> bool:
    """End the branch: the pool has no reply, or no reply could be read.

    Where none of the search's latest replies could be read, three at least and of two steps, it pauses instead, and the
    attempt is pending again.
    """
    with ending(db, attempt_id, owner, now, also) as (session, work):
        if work is None:
            return False
        recorded = list(calls)
        record_calls(session, work, recorded, now)
        if recorded and _only_unreadable(session, work.search):
            put_back(work.attempt)
            work.attempt.error = storable(reason)
            # Another answer may be better; the replies that could not be read stay among the calls.
            session.execute(
                update(AskRow)
                .where(AskRow.attempt_id == attempt_id, AskRow.state == "answered")
                .values(state="withdrawn")
            )
            if work.search.state == "running":
                last = f"the last {UNREADABLE_IN_A_ROW} replies of the model could not be read"
                pause_search(session, work.search, f"{last}: {reason}", now)
            return True
        fail_step(session, work, reason, now)
        return True


def _only_unreadable(session: Session, search: SearchRow) -> bool:
    """Check whether none of the search's latest replies could be read, on any request.

    They are at least UNREADABLE_IN_A_ROW, and of two steps. A search that replays a pool never counts: its replies stay
    as they are.
    """
    if search.model.get("provider") == "replay":
        return False
    latest = session.execute(
        select(ModelCallRow.attempt_id, ModelCallRow.reply.is_not(None), ModelCallRow.error.is_not(None))
        .where(ModelCallRow.search_id == search.id)
        .order_by(ModelCallRow.created_at.desc(), ModelCallRow.id.desc())
        .limit(LATEST_CALLS)
    ).tuples()
    attempts = [attempt_id for attempt_id, _, _ in takewhile(lambda call: call[1] and call[2], latest)]
    return len(attempts) >= UNREADABLE_IN_A_ROW and len(set(attempts)) > 1


def _twin(document: Mapping[str, Any]) -> int | None:
    """Return the number of the node whose binary this candidate repeats.

    None where the judge found none.
    """
    failure = document["failure"] or {}
    return int(failure["found"]) if failure.get("kind") == "duplicate" else None


def _judged(node: NodeRow, document: Mapping[str, Any], now: float) -> None:
    node.state = "judged"
    node.verdict = document["verdict"]
    node.gate = document["gate"]
    node.reason = document["reason"]
    node.score = document["score"]
    node.ci_low, node.ci_high = document["score_ci95"] or (None, None)
    node.limit_fraction = limit_fraction(document["workloads"])
    node.speedups = write_speedups(document["workloads"]) if node.verdict == "accepted" else None
    node.updated_at = now


def _challenge(session: Session, search: SearchRow, node: NodeRow) -> None:
    """Make `node` the champion where it is accepted, not banned, and faster than the one so far."""
    if node.verdict != "accepted" or node.score is None or node.mark == "banned":
        return
    champion = None if search.best_node_id is None else session.get_one(NodeRow, search.best_node_id)
    if champion is None or champion.score is None or node.score > champion.score:
        search.best_node_id = node.id


def _progress(search: SearchRow, node: NodeRow, document: Mapping[str, Any]) -> dict[str, Any]:
    attack = summarise_attack(document.get("attack"))
    return {
        "round": node.round,
        "technique": node.technique,
        "repairs": node.repairs,
        "verdict": node.verdict,
        "gate": node.gate,
        "reason": node.reason,
        "score": node.score,
        "ci95": document["score_ci95"],
        "limit_fraction": node.limit_fraction,
        "time_us": {workload["id"]: workload["time_us"] for workload in document["workloads"]},
        "best": search.best_node_id == node.id,
        "candidates": search.candidates,
        "model_calls": search.model_calls,
        "cost_usd": search.cost_usd,
        **({} if attack is None else {"attack": attack}),
    }


def _problem(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the op's author must change, from the verdict on the reference."""
    failure = document["failure"] or {}
    where = {"reference": "op.reference", "memory": "op.workloads"}.get(document["gate"], "op")
    return {
        "field": failure.get("field", where),
        "found": failure.get("found", failure.get("message", document["reason"])),
        "expected": failure.get("expected", "a reference that the judge can admit"),
    }
