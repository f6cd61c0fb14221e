"""Documents of ops from their rows."""

from __future__ import annotations

from sqlalchemy import select
from sqlalchemy.orm import Session

from warpsmith.kernels_db.store.tables import OpRow
from warpsmith.service.documents.ops import OpDocument, OpSummary


def make_op_summary(row: OpRow) -> OpSummary:
    """Make the summary of an op, without its spec."""
    return OpSummary(id=row.id, name=row.name, digest=row.digest, created_at=row.created_at)


def make_op_document(row: OpRow) -> OpDocument:
    """Make the document of an op with its spec."""
    return OpDocument(**make_op_summary(row).model_dump(), spec=row.spec)


def fetch_op_names(session: Session, ids: set[str]) -> dict[str, str]:
    """Fetch names of ops by id."""
    if not ids:
        return {}
    return dict(session.execute(select(OpRow.id, OpRow.name).where(OpRow.id.in_(ids))).tuples().all())
