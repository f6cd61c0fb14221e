"""Documents of bundles from their rows."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy.orm import Session

from warpsmith.kernels_db.store.listing import Bundle
from warpsmith.kernels_db.store.tables import SearchRow
from warpsmith.service.bundles.held_jobs import HeldJobs, count_held_jobs
from warpsmith.service.documents.bundles import BundleSummary
from warpsmith.service.views.ops import fetch_op_names
from warpsmith.service.views.rows import fetch_by_id


def make_bundle_summaries(session: Session, rows: Sequence[Bundle]) -> list[BundleSummary]:
    """Make one page of bundles, in four queries."""
    held = count_held_jobs(session, [row.id for row in rows])
    searches = fetch_by_id(session, SearchRow, {row.search_id for row in rows})
    names = fetch_op_names(session, {search.op_id for search in searches.values()})
    return [
        BundleSummary(
            id=row.id,
            search_id=row.search_id,
            op_name=names[searches[row.search_id].op_id],
            target=searches[row.search_id].target,
            created_at=row.created_at,
            jobs=row.jobs,
            merged=row.merged,
            out=of_row.out,
            unjudged=of_row.unjudged,
        )
        for row in rows
        for of_row in (held.get(row.id, HeldJobs(0, 0)),)
    ]
