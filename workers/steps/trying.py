"""Tries: candidates that are judged for a node before it is answered, as often as a budget allows.

A try is no step: no policy knows of it, and nothing of the tree changes by it. It stays with its node as history, and
what it held of the device counts on the search's `try_seconds`, apart from `gpu_seconds`.

    pending -> running -> done | failed        running -> pending: the lease ran out, the judge died, or the bundle that
                                               held it was dropped (`requested`)

Each function makes one write transaction that locks the search's row first. Tries at level compile hold no device, and
are refused by no budget of seconds; they go to any judge that compiles for the target (`compiling`), and are refused
where none is alive.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, cast, get_args

from sqlalchemy import func, or_, select
from sqlalchemy.orm import Session

from warpsmith.kernels_db.job.documents import Verdict
from warpsmith.kernels_db.store import leases
from warpsmith.kernels_db.store.counterexamples import Counterexample, known_counterexamples
from warpsmith.kernels_db.store.db import Database
from warpsmith.kernels_db.store.ids import new_id
from warpsmith.kernels_db.store.quotas import add_spending
from warpsmith.kernels_db.store.tables import NodeRow, OpRow, SearchRow, TryRow
from warpsmith.workers.queue_names import judge_queue
from warpsmith.workers.search.budget import parse_budget, try_limit
from warpsmith.workers.search.tree import ENDED
from warpsmith.workers.settings import Settings
from warpsmith.workers.steps.compiling import choose_queues, describe_lack, list_judges
from warpsmith.workers.steps.quotas import check_device
from warpsmith.workers.steps.reconciling import LARGEST_ROUND
from warpsmith.workers.steps.rows import add_event, lock_search, plain
from warpsmith.workers.steps.values import Message, UnknownSearch, WrongState
from warpsmith.workers.text import storable

TryLevel: TypeAlias = Literal["compile", "screen", "profile"]
"""How far a try goes: the gate and the compilers; a screening with its short timing; where the time goes."""

LEVELS: tuple[TryLevel, ...] = get_args(TryLevel)

MOST_OPEN = 4
"""Tries of a search that wait or run at once: the budget is exceeded by no more than these.

Those that only compile, which each answer asks for, count apart here and in `MOST_TRIES`.
"""

MOST_TRIES = 1000
"""Tries of a search in all."""

WAITS_S = 3600.0
"""Seconds that a try waits for a judge worker; then it ends without a verdict.

In a bundle it waits as long as that is out; where the bundle is dropped, so many seconds again.
"""


@dataclass(frozen=True)
class TryWork:
    """A claimed try with all that judging needs. op: the spec's document. counterexamples: of the op."""

    id: str
    node_id: str
    search_id: str
    level: TryLevel
    op: dict[str, Any]
    target: str
    language: str
    source: str
    tries: int
    counterexamples: tuple[Counterexample, ...] = ()


def seconds_of_tries(search: SearchRow) -> tuple[float, float]:
    """Return the device seconds that a search's tries have held, and may hold."""
    return search.try_seconds, try_limit(parse_budget(search.budget))


def ask_try(
    session: Session, node_id: str, source: str, level: TryLevel, now: float, by: str | None = None
) -> tuple[TryRow, list[Message]]:
    """Store a try of `source` for a node; returns it and the messages that announce it.

    Raises LookupError for an unknown node, WrongState where the search has ended, has too many tries open or in all, or
    has spent the seconds of its tries, and where no live judge compiles one at level compile; QuotaReached where its
    team has no device seconds left.
    """
    search_id = session.scalar(select(NodeRow.search_id).where(NodeRow.id == node_id))
    if search_id is None:
        raise LookupError(f"node: found {node_id!r}, expected the id of a node")
    search = lock_search(session, search_id)
    if search.state in ENDED:
        raise WrongState(f"search {search.id}", search.state, "one that has not ended; `warpsmith judge` judges a file")
    # An answer has its code compiled, too: that takes no turn of a try that wants the device.
    same = TryRow.level == "compile" if level == "compile" else TryRow.level != "compile"
    counted = select(func.count()).select_from(TryRow).where(TryRow.search_id == search.id, same)
    waiting = session.scalar(counted.where(TryRow.state.in_(leases.OPEN))) or 0
    if waiting >= MOST_OPEN:
        raise WrongState("tries", f"{waiting} of this search that wait or run", f"fewer than {MOST_OPEN}: wait for one")
    if (stored := session.scalar(counted) or 0) >= MOST_TRIES:
        raise WrongState("tries", f"{stored} of this search", f"fewer than {MOST_TRIES}: answer the node")
    if level == "compile":
        _check_compiler(session, search, now)
    else:
        _check_seconds(search)
        check_device(session, search.team, now)
    row = TryRow(
        id=new_id("ty"),
        search_id=search.id,
        node_id=node_id,
        level=level,
        language=search.language,
        source=storable(source),
        asked_by=None if by is None else storable(by)[:128],
        device_s=0.0,
        document={},
        state="pending",
        sent_at=now,
        created_at=now,
    )
    session.add(row)
    session.flush()
    return row, _list_messages(session, row, search, now)


def claim_try(db: Database, try_id: str, owner: str, lease_s: float, now: float) -> TryWork | None:
    """Take a pending try for `lease_s` seconds; None where it cannot be taken (taken already, ended).

    One that waited while its search ended, or while others spent the seconds, ends here without a verdict.
    """
    with db.writing() as session:
        search_id = session.scalar(select(TryRow.search_id).where(TryRow.id == try_id))
        if search_id is None:
            return None
        search = lock_search(session, search_id)
        if not leases.claim(session, TryRow, try_id, owner, lease_s, now):
            return None
        row = session.get_one(TryRow, try_id)
        try:
            return build_try_work(session, search, row)
        except WrongState as refused:
            end_try(session, search, row, None, str(refused), now)
            return None


def build_try_work(session: Session, search: SearchRow, row: TryRow) -> TryWork:
    """Build the work of a try that is to be judged now.

    Raises WrongState where its search has ended meanwhile, or others have spent the seconds.
    """
    if search.state in ENDED:
        raise WrongState("search", search.state, "one that has not ended")
    if row.level != "compile":
        _check_seconds(search)
    return TryWork(
        id=row.id,
        node_id=row.node_id,
        search_id=search.id,
        level=cast("TryLevel", row.level),
        op=session.get_one(OpRow, search.op_id).spec,
        target=search.target,
        language=row.language,
        source=row.source,
        tries=row.tries,
        counterexamples=known_counterexamples(session, search.op_id, search.target),
    )


def renew_try(db: Database, try_id: str, owner: str, lease_s: float, now: float) -> bool:
    """Hold the lease for another `lease_s` seconds; False: it was lost, stop."""
    with db.writing() as session:
        return leases.renew(session, TryRow, try_id, owner, lease_s, now)


def put_try_back(db: Database, try_id: str, owner: str) -> None:
    """Give a try back that this host cannot do; nothing counts against it, and its message is sent again."""
    with db.writing() as session:
        row = leases.held(session, TryRow, try_id, owner)
        if row is not None:
            leases.put_back(row, tries=row.tries - 1)


def finish_try(
    db: Database, try_id: str, owner: str, verdict: Verdict | None, reason: str, now: float, lost_s: float = 0.0
) -> bool:
    """Store the verdict of a try, or the reason why there is none, and what it held of the device.

    `lost_s`: what it held where there is no verdict to say so.

    Returns False, and writes nothing, where the lease was lost.
    """
    with db.writing() as session:
        search_id = session.scalar(select(TryRow.search_id).where(TryRow.id == try_id))
        if search_id is None:
            return False
        search = lock_search(session, search_id)
        row = leases.held(session, TryRow, try_id, owner)
        if row is None:
            return False
        end_try(session, search, row, verdict, reason, now, lost_s)
        return True


def reconcile_tries(db: Database, now: float, settings: Settings) -> list[Message]:
    """Return the messages of tries that crashes lost; one that was tried too often or waited too long ends."""
    expired, unsent = leases.expired(TryRow, now), leases.unsent(TryRow, now, settings.resend_after_s)
    wanted = or_(expired, unsent)
    with db.reading() as session:
        query = select(TryRow.id, TryRow.search_id).where(TryRow.state.in_(leases.OPEN), wanted).order_by(TryRow.id)
        found = session.execute(query.limit(LARGEST_ROUND)).tuples().all()
    messages = []
    for try_id, search_id in found:
        with suppress(UnknownSearch), db.writing() as session:  # deleted meanwhile
            search = lock_search(session, search_id)
            row = session.scalar(select(TryRow).where(TryRow.id == try_id, wanted).with_for_update())
            if row is None:  # another process was faster
                continue
            if row.state == "running" and not leases.return_expired(row, settings.max_tries):
                reason = f"gave up after {row.tries} tries: the judge or its worker died each time"
                end_try(session, search, row, None, reason, now)
            elif now - (row.returned_at or row.created_at) > WAITS_S:
                who = (
                    f"judge of {search.target}"
                    if row.level != "compile"
                    else f"judge that compiles for {search.target}"
                )
                reason = f"no {who} took it within {WAITS_S:g} s"
                end_try(session, search, row, None, reason, now)
            else:
                row.sent_at = now
                messages += _list_messages(session, row, search, now)
    return messages


def _check_seconds(search: SearchRow) -> None:
    spent, limit = seconds_of_tries(search)
    if spent >= limit:
        raise WrongState(
            "try_seconds",
            f"{spent:.1f} of {limit:g} device seconds spent on tries",
            f"some left: raise it (warpsmith budget {search.id} --tries 20m), or try at level compile, which is free",
        )


def _check_compiler(session: Session, search: SearchRow, now: float) -> None:
    judges = list_judges(session, now)
    if not choose_queues(judges, search.target, search.language):
        lack = describe_lack(judges, search.target, search.language)
        expected = f"a judge worker that compiles {search.language} for {search.target}: warpsmith workers lists them"
        raise WrongState("compiler", lack, expected)


def _list_messages(session: Session, row: TryRow, search: SearchRow, now: float) -> list[Message]:
    """List the messages of a pending try; of one that only compiles, one to each queue that may take it."""
    if row.level != "compile":
        return [Message(row.id, judge_queue(search.target))]
    return [Message(row.id, name) for name in choose_queues(list_judges(session, now), search.target, row.language)]


def end_try(
    session: Session,
    search: SearchRow,
    row: TryRow,
    verdict: Verdict | None,
    reason: str,
    now: float,
    lost_s: float = 0.0,
) -> None:
    """End a try under the search's lock."""
    leases.finish(row, "failed" if verdict is None else "done", now)
    row.reason = storable(reason)
    row.device_s = lost_s
    if verdict is not None:
        row.verdict, row.gate, row.score = verdict["verdict"], verdict["gate"], verdict["score"]
        if row.level != "compile":  # the interpreter's check holds this host's processor, and no device of the target
            row.device_s = float(verdict["seconds"].get("exclusive", 0.0))
        row.document = plain(_kept(verdict))
    search.try_seconds += row.device_s
    add_spending(session, search.team, now, device_seconds=row.device_s)
    if search.state not in ENDED:  # nothing follows the last event of a search
        told = {"try_id": row.id, "level": row.level, "state": row.state, "verdict": row.verdict, "score": row.score}
        add_event(session, search, "node.tried", now, session.get_one(NodeRow, row.node_id), **told)


def _kept(verdict: Verdict) -> Mapping[str, Any]:
    """Return a verdict without what only charts of a deciding one are drawn from."""
    document: dict[str, Any] = dict(verdict)
    document["workloads"] = [{**one, "samples": {}} for one in verdict["workloads"]]
    if (profile := verdict.get("profile")) is not None:
        document["profile"] = {**profile, "trace": {}}
    return document
