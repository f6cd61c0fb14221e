"""What a model may read beside its search: verified kernels of other ops. Asked for only where it is shown."""

from __future__ import annotations

from sqlalchemy import select

from warpsmith.kernels_db.spec.op import Target
from warpsmith.kernels_db.store.db import Database
from warpsmith.kernels_db.store.exemplar import Exemplar
from warpsmith.kernels_db.store.exemplars import find_exemplars
from warpsmith.kernels_db.store.records import parsed
from warpsmith.kernels_db.store.tables import SearchRow
from warpsmith.workers.steps.values import Work


def read_exemplars(db: Database, work: Work, most: int) -> tuple[Exemplar, ...]:
    """Return up to `most` kernels of other ops to read for a step, first those that won by its node's technique.

    None where this version does not take the op's spec, or the search was deleted meanwhile.
    """
    with db.reading() as session:
        query = select(SearchRow.op_id, SearchRow.team).where(SearchRow.id == work.search_id)
        found = session.execute(query).tuples().one_or_none()
        op = None if found is None else parsed(found[0], work.op)
        if found is None or op is None:
            return ()
        target = Target.parse(work.target)
        return find_exemplars(session, op, target, work.language, work.node.technique, most, found[1])
