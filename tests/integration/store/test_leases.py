"""A row's life under a lease: the same for attempts, re-verifications, profiles and tries, on both databases."""

from __future__ import annotations

import threading

import pytest
from sqlalchemy import select

from tests.support.reverifying import keep
from tests.support.steps_support import OP, Driver, create
from warpsmith.kernels_db.store import leases
from warpsmith.kernels_db.store.db import Database
from warpsmith.kernels_db.store.profiles import ask_profile
from warpsmith.kernels_db.store.table_base import Leased
from warpsmith.kernels_db.store.tables import AttemptRow, NodeRow, ProfileRow, ReverificationRow, TryRow
from warpsmith.workers.reverification import ask
from warpsmith.workers.steps.trying import ask_try

LEASE_S = 30.0


@pytest.fixture(params=[AttemptRow, ReverificationRow, ProfileRow, TryRow])
def table(request: pytest.FixtureRequest) -> type[Leased]:
    """A kind of row."""
    found: type[Leased] = request.param
    return found


@pytest.fixture
def row_id(db: Database, table: type[Leased]) -> str:
    """A pending row of that kind, asked for at 1000."""
    if table is AttemptRow:
        Driver(db, create(db)).advance()
    elif table is ReverificationRow:
        kernel_id = keep(db, OP)
        with db.writing() as session:
            ask(session, kernel_id, 1000.0, cause="asked")
    else:
        search_id = create(db)
        with db.writing() as session:
            node = session.scalars(select(NodeRow).where(NodeRow.search_id == search_id)).one()
            node.seq, node.source = 1, "text"
            if table is ProfileRow:
                ask_profile(session, node.id, 1000.0)
            else:
                ask_try(session, node.id, "text", "screen", 1000.0)
    with db.reading() as session:
        return session.scalars(select(table.id).where(table.state == "pending")).one()


def claim(db: Database, table: type[Leased], row_id: str, owner: str, now: float) -> bool:
    with db.writing() as session:
        return leases.claim(session, table, row_id, owner, LEASE_S, now)


def test_it_is_taken_renewed_and_ended_by_its_owner_alone(db: Database, table: type[Leased], row_id: str) -> None:
    assert claim(db, table, row_id, "me", 1001.0)
    assert not claim(db, table, row_id, "other", 1002.0)
    assert not claim(db, table, "unknown", "other", 1002.0)
    with db.writing() as session:
        assert leases.renew(session, table, row_id, "me", LEASE_S, 1020.0)
        assert not leases.renew(session, table, row_id, "other", LEASE_S, 1021.0)
        assert leases.held(session, table, row_id, "other") is None
        row = leases.held(session, table, row_id, "me")
        assert row is not None
        assert (row.tries, row.started_at, row.lease_expires_at) == (1, 1001.0, 1050.0)
        leases.finish(row, "ended", 1030.0)
    with db.writing() as session:
        assert not leases.renew(session, table, row_id, "me", LEASE_S, 1031.0)
        assert leases.held(session, table, row_id, "me") is None
        row = session.get_one(table, row_id)
        assert (row.state, row.owner, row.lease_expires_at, row.finished_at) == ("ended", "me", None, 1030.0)
    assert not claim(db, table, row_id, "other", 1032.0)


def test_one_whose_lease_ran_out_is_returned_until_it_was_tried_enough(
    db: Database, table: type[Leased], row_id: str
) -> None:
    for tries in (1, 2):
        now = 1000.0 * tries
        assert claim(db, table, row_id, f"owner {tries}", now)
        with db.writing() as session:
            assert session.scalars(select(table).where(leases.expired(table, now + LEASE_S))).all() == []
            row = session.scalars(select(table).where(leases.expired(table, now + LEASE_S + 0.01))).one()
            assert leases.return_expired(row, 2) == (tries == 1)
            assert (row.state, row.tries) == ("pending" if tries == 1 else "running", tries)
            assert leases.held(session, table, row_id, "owner 1") is None


def test_a_worker_that_gives_it_back_costs_no_try(db: Database, table: type[Leased], row_id: str) -> None:
    assert claim(db, table, row_id, "me", 1000.0)
    with db.writing() as session:
        row = leases.held(session, table, row_id, "me")
        assert row is not None
        leases.put_back(row)
    with db.reading() as session:
        row = session.scalars(select(table).where(leases.unsent(table, 1001.0, 60.0))).one()
        assert (row.id, row.owner, row.lease_expires_at, row.tries) == (row_id, None, None, 0)


def test_what_is_lent_is_brought_back_by_no_time(db: Database, table: type[Leased], row_id: str) -> None:
    with db.writing() as session:
        leases.lend(session.get_one(table, row_id), "bundle", 1000.0)
    with db.writing() as session:
        assert session.scalars(select(table).where(leases.expired(table, 1e12))).all() == []
        assert leases.held(session, table, row_id, "bundle") is not None
    assert not claim(db, table, row_id, "me", 2000.0)


def test_of_many_at_once_one_takes_it(db: Database, table: type[Leased], row_id: str) -> None:
    start, taken = threading.Barrier(6), []

    def take(number: int) -> None:
        start.wait(30)
        taken.append(claim(db, table, row_id, f"owner {number}", 1000.0))

    threads = [threading.Thread(target=take, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert sorted(taken) == [False] * 5 + [True]
