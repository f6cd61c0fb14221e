"""Waiting in tests."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest


def wait_until(
    condition: Callable[[], object],
    timeout_s: float = 20.0,
    what: str | Callable[[], str] = "it to come true",
    meanwhile: Callable[[], object] = lambda: None,
) -> None:
    """Poll `condition`, with `meanwhile` in between; fails the test with `what` after `timeout_s`.

    What is said then may be a function: the logs as they are at the end.
    """
    deadline = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline:
            pytest.fail(f"waited {timeout_s:g} s for {what if isinstance(what, str) else what()}")
        meanwhile()
        time.sleep(0.02)
