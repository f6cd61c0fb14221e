"""The catalogue proves itself: each cheat names what catches it, and works where that is off."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import get_args

import pytest

from benchmarks.redteam_catalogue import Cheat, cheats
from benchmarks.redteam_catalogue.text import LIBC, add_cpp
from benchmarks.redteam_proof.defences import ROWS, Defence, row_of
from benchmarks.redteam_proof.proof import WITHOUT_A_HOOK, prove
from benchmarks.redteam_proof.undefended import IN_RUNNERS, OFF

EVERY = [*cheats("cpu"), *cheats("cuda")]


def test_every_cheat_names_its_defences() -> None:
    assert [cheat.id for cheat in EVERY if row_of(cheat) is None] == []
    known = {name for cheat in EVERY for name in (cheat.name, cheat.id)}
    assert [name for name in ROWS if name not in known] == []


def test_every_defence_can_be_switched_off_or_says_why_not() -> None:
    assert set(OFF) | WITHOUT_A_HOOK == set(get_args(Defence))
    assert set(OFF) & WITHOUT_A_HOOK == set()
    assert set(IN_RUNNERS) <= set(OFF)


def named(*ids: str) -> list[Cheat]:
    found = [cheat for cheat in EVERY if cheat.id in ids]
    assert len(found) == len(ids)
    return found


@pytest.mark.nightly
def test_cheats_work_without_their_defence_and_broken_ones_are_void(tmp_path: Path) -> None:
    working = named(
        "caches by pointer [cpp]", "leaves its output as it finds it [cpp]", "reads a file of the host [cpp]"
    )
    broken = [
        dataclasses.replace(working[0], source=add_cpp("no such thing", LIBC)),
        dataclasses.replace(working[0], source=add_cpp("for (int64_t i = 0; i < n; i++) out[i] = i;")),
    ]
    found = [(cheat.source, outcome.good) for cheat, outcome in prove([*working, *broken], tmp_path)]
    assert len(found) == len(working) + len(broken)
    assert dict(found) == {cheat.source: cheat in working for cheat in [*working, *broken]}
