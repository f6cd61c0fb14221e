"""The op that a request names by id or by name: a stored one, else an example that ships."""

from __future__ import annotations

from sqlalchemy.orm import Session

from warpsmith.kernels_db.spec.near_misses import suggest
from warpsmith.kernels_db.spec.op import Op, load_op, parse_op
from warpsmith.kernels_db.store import listing
from warpsmith.kernels_db.store.tables import OpRow
from warpsmith.kernels_db.store.teams import may_read_held
from warpsmith.service.api.context import Service
from warpsmith.service.documents.problems import InvalidInput
from warpsmith.service.local.examples import list_examples
from warpsmith.service.local.named_ops import MOST_READ, NAME, STORED

MOST_LISTED = 20
"""Stored ops of one name that an error lists."""


def find_stored_op(service: Service, session: Session, op_id: str, team: str | None, field: str) -> Op:
    """Return the stored op of an id; raises InvalidInput for one that is not there, or that `team` may not read."""
    row = session.get(OpRow, op_id) if service.is_id(op_id) else None
    if row is None or not may_read_held(session, row.id, team):
        raise InvalidInput.one(field, op_id, "the id of a stored op (GET /v1/ops)")
    return parse_op(row.spec)


def find_op(service: Service, session: Session, text: str, team: str | None, field: str) -> Op:
    """Return the op of an id or a name, among those that `team` may read.

    Raises InvalidInput that names `field` where there is none, or several stored ops of the name.
    """
    if text.startswith(STORED):
        return find_stored_op(service, session, text, team, field)
    if NAME.fullmatch(text):  # other text may hold what a database refuses
        stored = listing.list_ops(session, limit=MOST_LISTED, name=text, team=team).items
        if len(stored) > 1:
            ids = ", ".join(row.id for row in stored)
            raise InvalidInput.one(field, text, f"one op, but several have this name; the id of one: {ids}")
        if stored:
            return parse_op(stored[0].spec)
    examples = list_examples()
    if text in examples:
        return load_op(examples[text])
    names = listing.list_op_names(session, limit=MOST_READ, team=team)
    expected = f"a spec, or the id ({STORED}...) or name of an op (GET /v1/ops, GET /v1/examples)"
    raise InvalidInput.one(field, text, f"{expected}{suggest(text, [*names, *examples])}")
