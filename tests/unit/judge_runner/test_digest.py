"""A digest tells whether any byte of a result changed, to nobody who lacks its keys."""

from __future__ import annotations

import random

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from warpsmith.workers.judge.runner import digest
from warpsmith.workers.judge.runner.digest import Digester, Seal, make_seal

CPU = torch.device("cpu")
ARENA = 6_000
EXTENTS = st.lists(st.tuples(st.integers(0, 4_000), st.integers(0, 1_000)), max_size=4)


@pytest.fixture(scope="module")
def digester() -> Digester:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(digest, "MOST_WORDS", 1 << 12)
        return Digester(CPU)


def taken(digester: Digester, arena: torch.Tensor, seal: Seal) -> int:
    return int(digester.take(arena, seal).item())


@given(EXTENTS, st.integers(0, 200), st.integers(), st.binary(max_size=24))
def test_a_seal_is_read_as_it_was_written(
    extents: list[tuple[int, int]], fixed: int, chance: int, order: bytes
) -> None:
    seal = make_seal(fixed, extents, random.Random(chance))
    assert Seal.read(seal.packed() + order) == (seal, order)
    assert len(set(seal.keys)) == 3
    assert all(key % 2 == 1 for key in seal.keys)


@given(EXTENTS, st.integers(0, ARENA - 1), st.integers(1, 255), st.integers())
@settings(max_examples=200, deadline=None)
def test_a_digest_changes_with_every_byte_of_its_windows_and_no_other(
    digester: Digester, extents: list[tuple[int, int]], at: int, change: int, chance: int
) -> None:
    rng = random.Random(chance)
    arena = torch.randint(
        0, 256, (ARENA,), dtype=torch.uint8, generator=torch.Generator().manual_seed(rng.getrandbits(60))
    )
    seal = make_seal(0, extents, rng)
    before = taken(digester, arena, seal)
    assert taken(digester, arena, seal) == before
    arena[at] ^= change
    inside = any(offset <= at < offset + size for offset, size in seal.windows)
    assert (taken(digester, arena, seal) != before) == inside
    assert not digester._mixed.any()
    assert not digester._shifted.any()


def test_what_is_exchanged_and_what_has_other_keys_is_another_digest(digester: Digester) -> None:
    arena = torch.arange(256, dtype=torch.int64).view(torch.uint8)
    one, other = (make_seal(0, [(0, 2048)], random.Random(seed)) for seed in (1, 2))
    swapped = arena.view(torch.int64).flip(0).contiguous().view(torch.uint8)
    found = {taken(digester, arena, one), taken(digester, arena, other), taken(digester, swapped, one)}
    assert len(found) == 3


def test_long_results_have_a_window_at_a_random_place(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(digest, "MOST_WORDS", 64)
    seals = [make_seal(0, [(64, 8_000), (16_384, 40)], random.Random(seed)) for seed in range(20)]
    assert len({seal.windows[0][0] for seal in seals}) > 10
    for seal in seals:
        (start, size), whole = seal.windows
        assert 64 <= start <= start + size <= 8_064
        assert size == 8 * 32
        assert whole == (16_384, 40)
