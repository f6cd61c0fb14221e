"""The route of the audit log."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query

from warpsmith.kernels_db.store import audit
from warpsmith.service.api.context import ServiceDependency
from warpsmith.service.api.paging import Limit, Word
from warpsmith.service.documents.audit import AuditDocument, AuditResult
from warpsmith.service.documents.page import Page
from warpsmith.service.documents.problems import InvalidInput, document_problems
from warpsmith.service.views.rows import make_document

router = APIRouter(prefix="/v1/audit", tags=["system"])


@router.get("", summary="The audit log", responses=document_problems(InvalidInput))
def list_audit(
    service: ServiceDependency,
    *,
    team: Annotated[Word | None, Query(description="Only of callers of this team")] = None,
    key: Annotated[Word | None, Query(description="Only of the API key with this prefix")] = None,
    action: Annotated[Word | None, Query(description="Only this action, such as `cancel_search`")] = None,
    object_id: Annotated[Word | None, Query(alias="object", description="Only what was about this row")] = None,
    result: Annotated[AuditResult | None, Query(description="Only with this result")] = None,
    limit: Limit = 50,
    after: Annotated[int | None, Query(ge=1, le=2**63 - 1, description="The `next` of the page before")] = None,
) -> Page[AuditDocument]:
    """List who changed what, and what was refused, newest first. For administrators."""
    wanted = {"team": team, "key_prefix": key, "action": action, "object_id": object_id, "result": result}
    with service.db.reading() as session:
        rows = audit.list_entries(session, limit=limit + 1, before=after, **wanted)
    items = [make_document(AuditDocument, row) for row in rows[:limit]]
    return Page(items=items, next=str(items[-1].id) if len(rows) > limit else None)
