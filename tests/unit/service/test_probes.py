"""The end of a probe while a check of it is under way."""

from __future__ import annotations

import threading

import pytest

from warpsmith.service.api import probes
from warpsmith.service.api.probes import Outcome, Probe


def test_closing_waits_for_the_check_under_way() -> None:
    """It holds a connection, which nobody closes where the database's pool is closed first."""
    began, answered, ended = threading.Event(), threading.Event(), threading.Event()

    def check() -> Outcome:
        began.set()
        answered.wait(10.0)
        ended.set()
        return Outcome("")

    probe = Probe("database", check, timeout_s=10.0, interval_s=0.0)
    probe.start()
    assert began.wait(10.0)
    threading.Timer(0.1, answered.set).start()
    probe.close()
    assert ended.is_set()


def test_closing_leaves_a_check_that_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probes, "LEFT_AT_END_S", 0.05)
    began, hung = threading.Event(), threading.Event()

    def check() -> Outcome:
        began.set()
        hung.wait(10.0)
        return Outcome("")

    probe = Probe("database", check, timeout_s=10.0, interval_s=0.0)
    probe.start()
    assert began.wait(10.0)
    probe.close()
    hung.set()


def test_a_probe_that_never_checked_is_closed() -> None:
    Probe("database", lambda: Outcome(""), timeout_s=1.0).close()
