"""The garbage collector while a process imports."""

from __future__ import annotations

import gc

import pytest

from warpsmith.workers.judge.machine.garbage import imports_kept


def test_nothing_is_collected_during_imports_and_what_they_made_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    kept: list[bool] = []
    monkeypatch.setattr(gc, "freeze", lambda: kept.append(gc.isenabled()))  # this process goes on
    with imports_kept():
        assert not gc.isenabled()
    assert kept == [False], "before the next collection"
    assert gc.isenabled()


def test_a_collector_that_was_off_stays_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gc, "freeze", lambda: None)
    monkeypatch.setattr(gc, "enable", lambda: pytest.fail("it was off before"))
    monkeypatch.setattr(gc, "isenabled", lambda: False)
    monkeypatch.setattr(gc, "disable", lambda: None)
    with imports_kept():
        pass
