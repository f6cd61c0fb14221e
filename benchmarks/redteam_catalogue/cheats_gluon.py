"""The Triton cheats and controls of the catalogue in Gluon, wherever Gluon has what they use; products are by hand.

Both are compiled by Triton and run by the same runner, so what is caught in one must be caught in the other.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

from benchmarks.redteam_catalogue.entry import Cheat, Control
from benchmarks.redteam_catalogue.text import HONEST_ADD, gluon_of


def translated_cheats(found: Iterable[Cheat]) -> list[Cheat]:
    """The cheats among `found` that Gluon can hold."""
    made = []
    for cheat in found:
        source = gluon_of(cheat.source) if cheat.language == "triton" else None
        if source is None or cheat.gates == frozenset({"gate"}):  # those of host code are in every language already
            continue
        honest = HONEST_ADD["gluon"] if cheat.honest == HONEST_ADD["triton"] else gluon_of(cheat.honest or "")
        before = gluon_of(cheat.before or "")
        if (cheat.honest is None) == (honest is None) and (cheat.before is None) == (before is None):
            made.append(dataclasses.replace(cheat, language="gluon", source=source, honest=honest, before=before))
    return made


def translated_controls(found: Iterable[Control]) -> list[Control]:
    """The controls among `found` that Gluon can hold."""
    made = []
    for control in found:
        source = gluon_of(control.source) if control.language == "triton" else None
        if source is not None:
            made.append(dataclasses.replace(control, language="gluon", source=source))
    return made
