"""Random parents."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.unit.search.policy_play import accepted, root, steps_of
from warpsmith.kernels_db.spec.errors import SpecError
from warpsmith.workers.search.policy import parse_policy
from warpsmith.workers.search.random_parent import RandomParent

NODES = [accepted(seq, 5.0 - seq, round=seq, verification="passed") for seq in (1, 2, 3)]
WRONG = accepted(4, 1.0, round=4, verdict="quarantined")


def drawn(seed: int, opened: int = 5) -> str | None:
    """The parent of round `opened`."""
    (step,) = steps_of(root(ideated=opened - 1), *NODES, WRONG, policy=RandomParent(seed=seed, rounds=1000))
    assert step.ordinal == opened
    return step.node_id


def test_root_and_contenders_are_equally_likely() -> None:
    counts = Counter(drawn(seed) for seed in range(800))
    assert set(counts) == {"n0", "n1", "n2", "n3"}
    assert all(150 < count < 250 for count in counts.values()), counts  # 200, and a standard deviation of 12


def test_the_draw_depends_on_seed_and_round() -> None:
    draws = {seed: [drawn(seed, opened) for opened in range(5, 45)] for seed in (1, 2)}
    assert draws[1] != draws[2]
    assert len(set(draws[1])) == 4
    assert draws[1] == [drawn(1, opened) for opened in range(5, 45)]


def test_a_pinned_node_is_asked_beside_the_one_drawn() -> None:
    nodes = [node._replace(mark="pinned") if node.seq == 3 else node for node in NODES]
    for seed in range(20):
        steps = steps_of(root(ideated=4), *nodes, policy=RandomParent(seed=seed))
        expected = dict.fromkeys([drawn(seed), "n3"])
        assert [step.node_id for step in steps] == list(expected)


def test_the_search_ends_after_its_rounds() -> None:
    (step,) = steps_of(root(ideated=4), *NODES, policy=RandomParent(rounds=4))
    assert step.reason == "4 rounds were played"


def test_bad_parameters_are_named() -> None:
    with pytest.raises(SpecError, match=r"policy.seed: found -1, expected a whole number from 0 to 9\.0072e\+15"):
        parse_policy({"name": "random", "seed": -1})
