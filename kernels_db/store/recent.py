"""The newest verdicts on a target, and the different values of an indexed column, without reading tables whole."""

from __future__ import annotations

from typing import Any

from sqlalchemy import ColumnElement, func, select
from sqlalchemy.orm import InstrumentedAttribute, Session

from warpsmith.kernels_db.store.tables import SearchRow, VerdictRow

SEARCHES = 20
"""Searches whose verdicts are looked at: a target's newest that have any."""

VERDICTS = 100
"""Verdicts that are looked at of the search among them that was judged last; of the others the newest."""


def list_recent_verdicts(session: Session, target: str, *which: ColumnElement[bool]) -> list[str]:
    """List ids of newest verdicts on `target` that `which` selects, newest first: of its latest searches.

    To sort all verdicts of the target reads every verdict there is where none is found: 14 s at a million of them, for
    kernels whose target has searches that wait for their first judge.
    """
    of_search = select(VerdictRow.id).where(VerdictRow.search_id == SearchRow.id, *which)
    # With its LIMIT it is looked up search by search; an EXISTS may be planned as a join with all verdicts.
    newest = of_search.order_by(VerdictRow.id.desc()).limit(1).correlate(SearchRow).scalar_subquery()
    searches = (
        select(newest.label("verdict_id"), SearchRow.id)
        .where(SearchRow.target == target, newest.is_not(None))
        .order_by(SearchRow.created_at.desc(), SearchRow.id.desc())
        .limit(SEARCHES)
    )
    found = {str(verdict_id): search_id for verdict_id, search_id in session.execute(searches)}
    if not found:
        return []
    of_last = select(VerdictRow.id).where(VerdictRow.search_id == found[max(found)], *which)
    more = session.scalars(of_last.order_by(VerdictRow.id.desc()).limit(VERDICTS))
    return sorted({*found, *more}, reverse=True)


def list_values(session: Session, column: InstrumentedAttribute[str]) -> list[str]:
    """List the different values of a column that begins an index, in order: one look-up for each.

    PostgreSQL and SQLite read every row for a DISTINCT.
    """
    values = select(func.min(column).label("value")).cte("found", recursive=True)
    following: Any = select(func.min(column)).where(column > values.c.value).scalar_subquery()
    values = values.union_all(select(following).where(values.c.value.is_not(None)))
    return list(session.scalars(select(values.c.value).where(values.c.value.is_not(None)).order_by(values.c.value)))
