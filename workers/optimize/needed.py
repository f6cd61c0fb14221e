"""The least share of its tensors that a region needs.

Rows that no operator takes are never read, and values for them alone are never computed. Pure functions of a region's
nodes. An unknown need counts as nothing, so that a limit that follows from this is no higher than the truth.
"""

from __future__ import annotations

import operator
from collections.abc import Callable

import torch
from torch.fx import Node

from warpsmith.workers.optimize.operators import name, tensor
from warpsmith.workers.optimize.regions import Region

Amount = tuple[Node, ...]
"""The elements of one node; of two, half as many as the smaller of them has."""

_SAME = frozenset(
    [
        "alias",
        "detach",
        "flatten",
        "movedim",
        "permute",
        "reshape",
        "squeeze",
        "swapaxes",
        "t",
        "transpose",
        "unflatten",
        "unsqueeze",
        "view",
        "view_as",
        "_unsafe_view",
        "mT",
    ]
)
"""Views that have every element once."""
_PART = frozenset(["diagonal", "narrow", "select", "slice"])
"""Views that have some elements, each once."""
_PARTS = frozenset(["chunk", "split", "split_with_sizes", "unbind"])
"""Views that are all elements in several tensors."""
_DRAWN = frozenset(["embedding", "index_select"])
"""Operators that take rows, of which a workload draws which, each as likely as any other."""
_SOME = frozenset(["embedding_bag", "gather", "index", "take", "take_along_dim", "tril", "triu"])
"""Operators that take an unknown part of their first argument."""


def needed(region: Region) -> Callable[[Node], list[Amount]]:
    """Return a function of an input or a node of the region: the amounts of it read at least."""
    known: dict[Node, list[Amount]] = {}

    def of(node: Node) -> list[Amount]:
        if node not in known:
            known[node] = _of(node, region, of)
        return known[node]

    return of


def whole(node: Node) -> list[Amount]:
    """Return all elements of a node."""
    return [(node,)]


def _of(node: Node, region: Region, of: Callable[[Node], list[Amount]]) -> list[Amount]:
    if node in region.outputs:
        return whole(node)
    found: list[list[Amount]] = [_by(user, node, of) for user in node.users if user in region.nodes]
    if whole(node) in found:
        return whole(node)
    return next((amounts for amounts in found if amounts), [])  # two users may read the same part: one of them counts


def _by(user: Node, node: Node, of: Callable[[Node], list[Amount]]) -> list[Amount]:
    """Return the amounts that one user needs of a node."""
    called, first = name(user), user.args[0] is node
    if called in _PARTS:
        return _by_parts(user, node, of)
    if of(user) != whole(user):
        return of(user) if called in (*_SAME, *_PART) else []
    if first and called in _PART and not _same_shape(user, node):
        return whole(user)
    if first and called in _DRAWN:
        return [(node, user)]
    return [] if first and called in _SOME else whole(node)


def _by_parts(user: Node, node: Node, of: Callable[[Node], list[Amount]]) -> list[Amount]:
    """Return the amounts that the tensors cut from a node need of it together."""
    parts = {part.args[1]: part for part in user.users if part.target is operator.getitem and of(part)}
    if all(of(part) == whole(part) for part in parts.values()) and len(parts) == len(user.meta["val"]):
        return whole(node)
    return [amount for part in parts.values() for amount in of(part)]


def _same_shape(user: Node, node: Node) -> bool:
    one, other = tensor(user), tensor(node)
    return one is not None and other is not None and _text(one) == _text(other)


def _text(value: torch.Tensor) -> list[str]:
    return [str(size) for size in value.shape]
