"""Warpsmith's tests; README and CONTRIBUTING.md say how to run which."""

from __future__ import annotations

from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[1]
"""The root of the checkout, wherever a test's own file is."""
