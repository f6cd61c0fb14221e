"""Numbers in messages: two that differ never look alike. Standard library only."""

from __future__ import annotations

from typing import Any

DIGITS, MOST_DIGITS = 9, 17
"""Significant digits that tell two numbers of 32 bits, and two of 64."""


def apart(one: Any, other: Any) -> tuple[str, str]:
    """Return two values as text, with as many digits as tell them from each other, at least DIGITS."""
    for digits in range(DIGITS, MOST_DIGITS + 1):
        texts = _shown(one, digits), _shown(other, digits)
        if texts[0] != texts[1]:
            break
    return texts


def shown(value: Any) -> str:
    """Return one value as text, with DIGITS significant digits."""
    return _shown(value, DIGITS)


def _shown(value: Any, digits: int) -> str:
    return f"{value:.{digits}g}" if isinstance(value, float) else str(value)
