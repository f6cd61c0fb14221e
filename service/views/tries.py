"""Documents of tries from their rows."""

from __future__ import annotations

from typing import cast

from sqlalchemy.orm import Session

from warpsmith.kernels_db.job.documents import Verdict, has_compiled
from warpsmith.kernels_db.spec.op import Target, parse_op
from warpsmith.kernels_db.spec.resolve import resolve_workload
from warpsmith.kernels_db.store import listing
from warpsmith.kernels_db.store.tables import OpRow, SearchRow, TryRow
from warpsmith.service.documents.figures import list_kernel_uses
from warpsmith.service.documents.profiles import ProfileRowDocument
from warpsmith.service.documents.tries import TryDocument, TrySummary
from warpsmith.service.documents.workloads import read_workload_times
from warpsmith.service.views.rows import make_document
from warpsmith.workers.llm.prompt import feedback
from warpsmith.workers.steps.trying import seconds_of_tries

MOST_OF_NODE = 100
"""The latest tries that a node's document has."""


def make_try_summary(row: TryRow) -> TrySummary:
    """Make the summary of one try."""
    return make_document(TrySummary, row)


def list_tries_of_node(session: Session, node_id: str) -> list[TrySummary]:
    """List a node's latest tries, oldest first."""
    latest = listing.list_tries(session, limit=MOST_OF_NODE, node_id=node_id).items
    return [make_try_summary(row) for row in reversed(latest)]


def make_try_document(session: Session, row: TryRow) -> TryDocument:
    """Make the document of a try with what the judge found."""
    search = session.get_one(SearchRow, row.search_id)
    spent_s, limit_s = seconds_of_tries(search)
    document = row.document
    found = None
    if document:
        op = parse_op(session.get_one(OpRow, search.op_id).spec)
        workloads = [resolve_workload(op, each) for each in op.workloads_for(Target.parse(search.target))]
        found = feedback.feedback(cast("Verdict", document), workloads)
    timed = [one for one in document.get("workloads") or [] if one["time_us"]]
    rows = (document.get("profile") or {}).get("rows") or []
    return TryDocument(
        **make_try_summary(row).model_dump(),
        language=row.language,
        source=row.source,
        score_ci95=document.get("score_ci95"),
        feedback=found,
        workloads=read_workload_times(timed),
        profile=[ProfileRowDocument.model_validate(one) for one in rows],
        seconds=document.get("seconds") or {},
        target=search.target,
        compiled=bool(document) and has_compiled(cast("Verdict", document)),
        kernels=list_kernel_uses(document.get("compile") or {}) if row.level == "compile" else [],
        spent_s=round(spent_s, 3),
        limit_s=limit_s,
    )
