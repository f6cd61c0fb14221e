"""Nodes of the tree."""

from __future__ import annotations

from fastapi import APIRouter
from sqlalchemy import select

from kernels_db.models import NodeRow, SearchRow
from service import views
from service.context import ServiceDependency
from service.problems import NotFound, documented
from service.schemas import NodeDocument

router = APIRouter(prefix="/v1/nodes", tags=["nodes"])


@router.get("/{node_id}", summary="One node", responses=documented(NotFound))
def get_node(node_id: str, service: ServiceDependency) -> NodeDocument:
    """A node with its idea, source, verdicts, attempts and model calls (prompts and replies as they were)."""
    with service.db.reading() as session:
        row = service.row(session, NodeRow, node_id, "node")
        best_id = session.scalar(select(SearchRow.best_node_id).where(SearchRow.id == row.search_id))
        return views.node_document(session, row, best_id)
