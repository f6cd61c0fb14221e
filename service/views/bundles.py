"""Build documents of bundles."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy.orm import Session

from warpsmith.kernels_db.store.listing import Bundle
from warpsmith.kernels_db.store.tables import SearchRow
from warpsmith.service.bundles.unjudged import unjudged_counts
from warpsmith.service.documents.bundles import BundleSummary
from warpsmith.service.views.ops import op_names
from warpsmith.service.views.rows import by_id


def bundle_summaries(session: Session, rows: Sequence[Bundle]) -> list[BundleSummary]:
    """One page of bundles, in four queries."""
    unjudged = unjudged_counts(session, [row.id for row in rows])
    searches = by_id(session, SearchRow, {row.search_id for row in rows})
    names = op_names(session, {search.op_id for search in searches.values()})
    return [
        BundleSummary(
            id=row.id,
            search_id=row.search_id,
            op_name=names[searches[row.search_id].op_id],
            target=searches[row.search_id].target,
            created_at=row.created_at,
            jobs=row.jobs,
            merged=row.merged,
            out=row.jobs - row.merged,
            unjudged=unjudged.get(row.id, 0),
        )
        for row in rows
    ]
