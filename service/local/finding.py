"""Result of one check of `warpsmith doctor`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

State = Literal["ok", "note", "bad"]


@dataclass(frozen=True)
class Finding:
    """Result of one check.

    ok: fine; note: absent, but needed for some uses only; bad: Warpsmith does not work without it.
    """

    name: str
    state: State
    found: str
    fix: str | None = None
