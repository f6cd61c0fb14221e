"""An answer is made once at a time for each key, kept for a while, and few are kept."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.support.waiting import wait_until
from warpsmith.service.api import recent
from warpsmith.service.api.recent import MOST_KEPT, RecentAnswers


def test_who_asks_while_it_is_made_waits_for_it() -> None:
    answers, go, made = RecentAnswers(), threading.Event(), []

    def make() -> bytes:
        made.append(1)
        assert go.wait(20)
        return b"answer"

    with ThreadPoolExecutor(4) as pool:
        asked = [pool.submit(answers.get_or_make, "a", stamp, make) for stamp in range(4)]
        wait_until(lambda: answers._entries["a"].users == 4, what="four who ask")
        go.set()
        assert [one.result() for one in asked] == [b"answer"] * 4
    assert len(made) == 1


def test_a_failure_is_not_kept() -> None:
    answers = RecentAnswers()

    def fail() -> bytes:
        raise OSError("no database")

    with pytest.raises(OSError, match="no database"):
        answers.get_or_make("a", 1, fail)
    assert answers.get_or_make("a", 1, lambda: b"answer") == b"answer"


def test_an_old_answer_is_given_while_nothing_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = RecentAnswers()
    assert answers.get_or_make("a", 1, lambda: b"first") == b"first"
    assert answers.get_or_make("a", 2, lambda: b"second") == b"first", "young"
    monkeypatch.setattr(recent, "KEPT_S", 0.0)
    assert answers.get_or_make("a", 1, lambda: b"second") == b"first", "of the same"
    assert answers.get_or_make("a", 2, lambda: b"second") == b"second"


def test_few_are_kept_the_least_recently_asked_for_go() -> None:
    answers = RecentAnswers()
    for number in range(MOST_KEPT + 5):
        answers.get_or_make(number, 0, lambda: b"")
        answers.get_or_make(0, 0, lambda: b"")
    assert len(answers) == MOST_KEPT
    assert answers.get_or_make(0, 0, lambda: b"made again") == b""
    assert answers.get_or_make(1, 0, lambda: b"made again") == b"made again"
