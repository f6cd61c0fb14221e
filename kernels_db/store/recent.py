"""The newest verdicts on a target, and the different values of an indexed column, without reading tables whole."""

from __future__ import annotations

from typing import Any

from sqlalchemy import ColumnElement, Select, func, select
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
    # With its LIMIT it is looked up search by search; an EXISTS may be planned as a join with all verdicts.
    newest = _newest(SearchRow.id, which).limit(1).correlate(SearchRow).scalar_subquery()
    searches = (
        select(newest.label("verdict_id"), SearchRow.id)
        .where(SearchRow.target == target, newest.is_not(None))
        .order_by(SearchRow.created_at.desc(), SearchRow.id.desc())
        .limit(SEARCHES)
    )
    found = {str(verdict_id): search_id for verdict_id, search_id in session.execute(searches)}
    if not found:
        return []
    more = session.scalars(_newest(found[max(found)], which).limit(VERDICTS))
    return sorted({*found, *more}, reverse=True)


def _newest(search_id: Any, which: tuple[ColumnElement[bool], ...]) -> Select[tuple[str]]:
    """Select the ids of a search's verdicts, newest first, in the order of the index of both columns.

    Where the search is said to equal, PostgreSQL drops it from the order, and may read the verdicts of all searches
    from the newest on until there are enough of this one: it guesses that they lie evenly.
    """
    query = select(VerdictRow.id).where(VerdictRow.search_id.between(search_id, search_id), *which)
    return query.order_by(VerdictRow.search_id.desc(), VerdictRow.id.desc())


def list_values(session: Session, column: InstrumentedAttribute[str]) -> list[str]:
    """List the different values of a column that begins an index, in order: one look-up for each.

    PostgreSQL and SQLite read every row for a DISTINCT.
    """
    values = select(func.min(column).label("value")).cte("found", recursive=True)
    following: Any = select(func.min(column)).where(column > values.c.value).scalar_subquery()
    values = values.union_all(select(following).where(values.c.value.is_not(None)))
    return list(session.scalars(select(values.c.value).where(values.c.value.is_not(None)).order_by(values.c.value)))
