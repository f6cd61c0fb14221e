"""Documents of asks from their rows."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import select
from sqlalchemy.orm import Session

from warpsmith.kernels_db.store.tables import AskRow, AttemptRow, NodeRow, SearchRow
from warpsmith.service.documents.asks import AskDocument, AskIdeas, AskStep, AskSummary
from warpsmith.service.views.nodes import make_node_summary
from warpsmith.service.views.ops import fetch_op_names
from warpsmith.service.views.rows import fetch_by_id, read_title
from warpsmith.workers.llm.base import ModelReply
from warpsmith.workers.llm.reply.parsing import IdeasRead, Unreadable, read_ideas
from warpsmith.workers.llm.reply.techniques import ruled_out


def make_ask_summaries(session: Session, rows: Sequence[AskRow]) -> list[AskSummary]:
    """Make one page of asks without their prompts, in three queries."""
    searches = fetch_by_id(session, SearchRow, {row.search_id for row in rows})
    nodes = fetch_by_id(session, NodeRow, {row.node_id for row in rows})
    names = fetch_op_names(session, {search.op_id for search in searches.values()})
    found = []
    for row in rows:
        search, node = searches[row.search_id], nodes[row.node_id]
        found.append(_make_ask_summary(row, search, node, names[search.op_id]))
    return found


def _make_ask_summary(row: AskRow, search: SearchRow, node: NodeRow, op_name: str) -> AskSummary:
    own = {name: getattr(row, name) for name in AskSummary.model_fields if hasattr(row, name)}
    return AskSummary(**own, op_name=op_name, target=search.target, seq=node.seq, title=read_title(node.idea))


def make_ask_document(session: Session, row: AskRow, replaced_by: str | None) -> AskDocument:
    """Make the document of an ask with its prompt and the state of its answer."""
    [summary] = make_ask_summaries(session, [row])
    node, attempt = session.get_one(NodeRow, row.node_id), session.get_one(AttemptRow, row.attempt_id)
    best_id = session.scalar(select(SearchRow.best_node_id).where(SearchRow.id == row.search_id))
    return AskDocument(
        **summary.model_dump(),
        messages=row.messages,
        reply=row.reply,
        ideas=_read_ideas(row, attempt),
        replaced_by=replaced_by,
        step=AskStep(kind=attempt.kind, state=attempt.state, error=attempt.error),
        node=make_node_summary(node, best_id),
    )


def _read_ideas(row: AskRow, attempt: AttemptRow) -> AskIdeas | None:
    """Read the ideas of an answer as the step reads them; None where there is no answer, or it is of another kind."""
    if row.kind != "ideate" or row.reply is None:
        return None
    wanted = int(attempt.params["ideas"]) if "ideas" in attempt.params else None
    try:
        read = read_ideas(ModelReply(row.reply, None, None, None, None, None, 0.0), wanted)
    except Unreadable as unreadable:  # the search says so, and asks again
        read = IdeasRead([], [], [unreadable.problem])
    avoided = ruled_out(attempt.params)
    barred = [idea for idea in read.taken if idea["technique"] in avoided]
    said = [f"{idea['title']!r} uses the technique {idea['technique']}, which is ruled out" for idea in barred]
    taken = [idea["title"] for idea in read.taken if idea["technique"] not in avoided]
    return AskIdeas(wanted=wanted, taken=taken, left_out=[*read.left_out, *said])
