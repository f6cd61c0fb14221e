"""Whose steps a bundle's are: the one condition by which queries tell them from those of workers."""

from __future__ import annotations

import pytest
from sqlalchemy import func, select

from tests.support.steps_support import Driver, create
from warpsmith.kernels_db.store.db import Database
from warpsmith.kernels_db.store.tables import AttemptRow
from warpsmith.workers.steps.returning import unjudged
from warpsmith.workers.steps.rows import in_bundle, owner_of


@pytest.mark.parametrize(
    ("owner", "held"),
    [(None, 0), ("worker-1", 0), ("bundles are not this", 0), (owner_of("bn_01"), 1)],
)
def test_only_a_bundle_is_an_owner_of_this_kind(db: Database, owner: str | None, held: int) -> None:
    driver = Driver(db, create(db))
    driver.until("judge")
    with db.writing() as session:
        (attempt,) = session.scalars(select(AttemptRow).where(AttemptRow.state == "running"))
        attempt.owner, attempt.error = owner, "no GPU"
    of_it = select(func.count()).where(AttemptRow.state == "running")
    with db.reading() as session:
        counts = [session.scalar(of_it.where(each)) for each in (in_bundle(), ~in_bundle(), unjudged())]
    assert counts == [held, 1 - held, held], "a step without an owner is not in a bundle"
