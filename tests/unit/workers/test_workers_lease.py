"""The lease keeper, on its own thread and a real clock."""

from __future__ import annotations

import threading
import time

import pytest
from sqlalchemy.exc import OperationalError

from warpsmith.workers.queue import lease as lease_module
from warpsmith.workers.queue.lease import LeaseKeeper


def test_it_renews_until_the_step_ends() -> None:
    renewed = threading.Event()
    with LeaseKeeper(lambda: renewed.set() or True, lease_s=0.03) as lease:
        assert renewed.wait(20)
    assert not lease.lost
    assert not any(thread.name == "lease-keeper" for thread in threading.enumerate())


def lost_within(lease: LeaseKeeper, timeout_s: float) -> bool:
    deadline = time.monotonic() + timeout_s
    while not lease.lost and time.monotonic() < deadline:
        time.sleep(0.005)
    return lease.lost


def test_a_refused_renewal_loses_the_lease() -> None:
    with LeaseKeeper(lambda: False, lease_s=0.03) as lease:
        assert lost_within(lease, 20)


def test_a_database_outage_is_waited_out_for_as_long_as_the_lease_lasts(monkeypatch: pytest.MonkeyPatch) -> None:
    outages = iter([True, False])
    renewed = threading.Event()

    def renew() -> bool:
        if next(outages, False):
            raise OperationalError("UPDATE", {}, Exception("server closed the connection"))
        renewed.set()
        return True

    monkeypatch.setattr(lease_module, "RENEWALS_PER_LEASE", 3000)  # asked again long before this lease ends
    with LeaseKeeper(renew, lease_s=30.0) as lease:
        assert renewed.wait(20)
    assert not lease.lost


def test_an_outage_longer_than_the_lease_loses_it() -> None:
    def renew() -> bool:
        raise OperationalError("UPDATE", {}, Exception("server closed the connection"))

    began = time.monotonic()
    with LeaseKeeper(renew, lease_s=0.06) as lease:
        assert lost_within(lease, 20)
    assert time.monotonic() - began >= 0.06


def test_an_error_inside_is_not_swallowed() -> None:
    with pytest.raises(KeyError), LeaseKeeper(lambda: True, lease_s=1.0):
        raise KeyError("x")
