"""The type of a clock: its owner passes it down."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

Clock: TypeAlias = Callable[[], float]
"""Seconds since the epoch, UTC: `time.time`, or a test's own."""
