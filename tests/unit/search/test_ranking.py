"""The ranking of a tree, held to what its parts say of one node."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from warpsmith.workers.search.ranking import is_contender, is_open, ranked, score
from warpsmith.workers.search.tree import NodeView, Tree, planned

NODES = st.lists(
    st.fixed_dictionaries(
        {
            "state": st.sampled_from(["planned", "coding", "coded", "judging", "judged", "judged", "judged", "closed"]),
            "verdict": st.sampled_from([None, "accepted", "accepted", "accepted", "rejected"]),
            "score": st.one_of(st.none(), st.sampled_from([0.0, 1.0, 2.0]), st.floats(0.0, 9.0)),
            "verification": st.sampled_from(["none", "open", "passed", "failed"]),
            "ideation": st.sampled_from(["none", "open", "done"]),
            "round": st.integers(0, 9),
            "ideated": st.integers(0, 9),
        }
    ),
    min_size=1,
    max_size=40,
).map(lambda rows: [planned(f"nd_{seq}", seq, None, 0, None)._replace(**row) for seq, row in enumerate(rows)])


@given(nodes=NODES, order=st.randoms(use_true_random=False))
def test_contenders_come_by_score_and_age_whatever_order_they_came_in(
    nodes: list[NodeView], order: random.Random
) -> None:
    wanted = sorted(filter(is_contender, nodes), key=lambda node: (-score(node), node.seq))
    assert ranked(nodes) == wanted
    order.shuffle(nodes)
    assert ranked(nodes) == wanted


@given(nodes=NODES)
def test_a_tree_tells_its_open_nodes_and_its_latest_round(nodes: list[NodeView]) -> None:
    tree = Tree(nodes)
    assert tree.under_way == [node for node in nodes if is_open(node)]
    assert tree.rounds == max(max(node.round, node.ideated) for node in nodes)
