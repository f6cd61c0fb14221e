"""A problem that the gate finds."""

from __future__ import annotations

from typing import NamedTuple


class Problem(NamedTuple):
    """A breach of the candidate contract.

    `line` counts from 1; `message` names the finding and the allowed forms.
    """

    line: int
    message: str
