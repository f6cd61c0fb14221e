"""What a ban takes back: the open steps of a node that nobody works on.

    waiting                  its ask is withdrawn for good: no answer is wanted for a node that is left out
    pending                  cancelled, and the node is as it was before the step was opened
    running, in a bundle     the same: a bundle travels for days, and its verdict comes too late
    running, at a worker     stays: it ends by itself, and its result changes nothing about a banned node

So no round waits for a node that is left out. Once the ban is lifted the policy may ask for a step that was pending or
travelled again, and `growth` opens it again; for ideas it asks anew, in a later round. All of it happens under the
search's lock.
"""

from __future__ import annotations

from sqlalchemy import and_, or_, select, update
from sqlalchemy.orm import Session

from warpsmith.kernels_db.store.tables import AskRow, AttemptRow, NodeRow, SearchRow, VerdictRow
from warpsmith.workers.steps.endings import close_node
from warpsmith.workers.steps.rows import close_attempt, in_bundle

_IDLE = or_(
    AttemptRow.state.in_(("pending", "waiting")),
    and_(AttemptRow.state == "running", in_bundle()),
)
"""Open steps on which no worker works."""


def take_back(session: Session, search: SearchRow, node: NodeRow, now: float) -> list[str]:
    """End the open steps of a banned node on which no worker works; returns their kinds."""
    idle = session.scalars(select(AttemptRow).where(AttemptRow.node_id == node.id, _IDLE).order_by(AttemptRow.id)).all()
    for attempt in idle:
        asked = attempt.state == "waiting"
        close_attempt(attempt, "cancelled", now)
        of_step = (AskRow.attempt_id == attempt.id, AskRow.state == "open")  # of a pending one, too: see `asks`
        session.execute(update(AskRow).where(*of_step).values(state="withdrawn"))
        _set_back(session, search, node, attempt, asked, now)
        node.updated_at = now
    return [attempt.kind for attempt in idle]


def take_back_all(session: Session, search: SearchRow, now: float) -> None:
    """Take back what came into the queue again since its node was banned: the worker died or gave it back."""
    pending = (AttemptRow.search_id == search.id, AttemptRow.state == "pending", NodeRow.mark == "banned")
    query = select(NodeRow.id).join(AttemptRow, AttemptRow.node_id == NodeRow.id).where(*pending).distinct()
    for node_id in session.scalars(query).all():
        take_back(session, search, session.get_one(NodeRow, node_id), now)


def _set_back(session: Session, search: SearchRow, node: NodeRow, attempt: AttemptRow, asked: bool, now: float) -> None:
    """Make the node what it was before the step was opened; one whose code was `asked` for in vain is closed."""
    match attempt.kind:
        case "ideate":
            node.ideation = "done"
        case "judge":
            node.state = "coded"
        case "verify":
            node.verification = "none"
        case _ if node.source is None and asked:
            close_node(session, search, node, "banned before its code was written", now)
        case _ if node.source is None:
            node.state = "planned"
        case _:
            node.state = "judged"
            level = select(VerdictRow.level).where(VerdictRow.node_id == node.id).order_by(VerdictRow.id.desc())
            node.verification = "failed" if session.scalar(level.limit(1)) == "verify" else "none"
            if not asked:
                node.repairs = attempt.ordinal - 1
