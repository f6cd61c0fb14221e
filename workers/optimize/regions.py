"""Find connected parts of a model's graph that one kernel could compute.

Pure functions of a graph. A region grows along the graph's edges, in its order. Pointwise operators, reductions,
normalisations, gathers and copies in a chain are one region. A matrix product takes with it the element-wise operators
that follow, but leaves those that lead to a reduction or a normalisation to that one. Two products are one region only
around a softmax. Copies go with a product of two activations that they feed. Views cost nothing: they belong to the
operators whose strides they save. No path leaves a region and comes back.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from torch.fx import Graph, Node

from warpsmith.workers.optimize.operators import FUSABLE, Kind, kind, name, tensor

MOST_OUTPUTS = 2
MOST_INPUTS = 12
_FARTHEST = 6
"""Operators that are looked ahead to find out what something leads to."""
_HEAVY: tuple[Kind, ...] = ("product", "attention")
_FREE: tuple[Kind, ...] = ("view", "source")
"""Kinds of operators that cost nothing by themselves."""
_ROWS: tuple[Kind, ...] = ("reduction", "normalisation")


@dataclass(frozen=True)
class Region:
    """A connected part of a graph.

    `nodes` in the graph's order; `inputs` are the tensors from outside in the order of their first use; `outputs`
    the nodes that others use.
    """

    nodes: tuple[Node, ...]
    inputs: tuple[Node, ...]
    outputs: tuple[Node, ...]

    @property
    def title(self) -> str:
        """The operators that cost something, in order."""
        return " + ".join(name(node) for node in self.nodes if kind(node) not in _FREE)

    @property
    def modules(self) -> str:
        """Names of the modules whose code the region is."""
        found = dict.fromkeys(_innermost(node) for node in self.nodes if kind(node) not in _FREE)
        return " + ".join(found)


def find(graph: Graph) -> list[Region]:
    """Find the regions of a graph that cost something, in its order.

    Every operator that could be in a kernel is in one.
    """
    grower = _Grower(graph)
    for node in graph.nodes:
        if kind(node) in FUSABLE:
            grower.place(node)
    order = {node: number for number, node in enumerate(graph.nodes)}
    return [region for nodes in grower.groups() if (region := _trimmed(nodes, order)) is not None]


class _Grower:
    """Groups of nodes by the bits of their positions in the graph."""

    def __init__(self, graph: Graph) -> None:
        self._nodes = list(graph.nodes)
        self._position = {node: number for number, node in enumerate(self._nodes)}
        self._group: dict[Node, int] = {}
        self._members: dict[int, list[Node]] = {}
        self._before = [0] * len(self._nodes)
        self._after = [0] * len(self._nodes)
        for number, node in enumerate(self._nodes):
            for source in node.all_input_nodes:
                at = self._position[source]
                self._before[number] |= self._before[at] | 1 << at
        for number in range(len(self._nodes) - 1, -1, -1):
            for user in self._nodes[number].users:
                at = self._position[user]
                self._after[number] |= self._after[at] | 1 << at

    def place(self, node: Node) -> None:
        """Put a node into a group of its own, and join it with those of its inputs that fit."""
        own = len(self._members)
        self._group[node], self._members[own] = own, [node]
        for source in node.all_input_nodes:
            if source in self._group and self._group[source] != self._group[node]:
                first, second = self._members[self._group[source]], self._members[self._group[node]]
                if _together(first, second) and self._closed(first + second):
                    self._join(self._group[source], self._group[node])

    def groups(self) -> list[list[Node]]:
        """Return the groups, by their first node, each in the graph's order."""
        found = [sorted(members, key=self._position.__getitem__) for members in self._members.values() if members]
        return sorted(found, key=lambda members: self._position[members[0]])

    def _join(self, into: int, gone: int) -> None:
        for node in self._members[gone]:
            self._group[node] = into
        self._members[into] += self._members.pop(gone)
        self._members[gone] = []

    def _closed(self, nodes: list[Node]) -> bool:
        """Check whether no path leaves the nodes and comes back."""
        own = before = after = 0
        for node in nodes:
            at = self._position[node]
            own |= 1 << at
            before |= self._before[at]
            after |= self._after[at]
        return before & after & ~own == 0


def _together(first: list[Node], second: list[Node]) -> bool:
    """Check whether the computation of `first` may go on with `second`, which uses it."""
    costly = [node for node in _edges(first + second)[1] if kind(node) not in _FREE]
    if len(costly) > MOST_OUTPUTS:
        return False
    heavy = [node for node in first if kind(node) in _HEAVY]
    heavy_after = [node for node in second if kind(node) in _HEAVY]
    if heavy and heavy_after:
        softmax = any(_is_softmax(node) for node in first)
        return len(heavy) == len(heavy_after) == 1 and kind(heavy[0]) == "product" and softmax
    if not heavy_after and any(_waits_for_product(node) for node in second):
        return False
    if heavy:
        return all(kind(node) in _FREE or not _leads_to_rows(node) for node in second)
    if heavy_after:
        costs = [node for node in first if kind(node) not in _FREE]
        return not costs or (all(kind(node) == "copy" for node in costs) and all(map(_of_activations, heavy_after)))
    return True


def _leads_to_rows(node: Node) -> bool:
    """Check whether operators after a product belong to a later reduction or normalisation."""
    if _is_softmax(node):
        return False

    def reduces(other: Node) -> bool:
        return kind(other) in _ROWS and not _is_softmax(other)

    return reduces(node) or _leads_to(node, ("pointwise", *_FREE), reduces)


def _waits_for_product(node: Node) -> bool:
    """Check whether a copy belongs to a product of two activations that it feeds."""
    return kind(node) == "copy" and _leads_to(node, _FREE, _of_activations)


def _leads_to(node: Node, through: Sequence[Kind], wanted: Callable[[Node], bool]) -> bool:
    """Check whether the node's result reaches a wanted one through these kinds alone."""
    waiting, seen = [(node, 0)], {node}
    while waiting:
        at, steps = waiting.pop()
        for user in at.users:
            if wanted(user):
                return True
            if user not in seen and steps < _FARTHEST and kind(user) in through:
                seen.add(user)
                waiting.append((user, steps + 1))
    return False


def _is_softmax(node: Node) -> bool:
    return name(node) in ("softmax", "_softmax")


def _of_activations(node: Node) -> bool:
    """Check whether a node is a product without weights."""
    return kind(node) == "product" and all(source.op != "get_attr" for source in node.all_input_nodes)


def _trimmed(nodes: list[Node], order: dict[Node, int]) -> Region | None:
    """Return the region with the views at its ends that save strides, and no others.

    None where nothing is left that costs, or where it has more inputs or outputs than a kernel is given.
    """
    kept = list(nodes)
    while gone := {node for node in kept if _ends_early(node, kept) or _starts_late(node, kept)}:
        kept = [node for node in kept if node not in gone]
    while more := {node for node in _edges(kept)[0] if _is_awkward(node, kept)}:
        kept = sorted({*kept, *more}, key=order.__getitem__)
    inputs, outputs = _edges(kept)
    outputs = tuple(node for node in outputs if node in nodes)  # a view that was taken along stays where it was, too
    if not any(kind(node) not in _FREE for node in kept):
        return None
    if not 1 <= len(outputs) <= MOST_OUTPUTS or not 1 <= len(inputs) <= MOST_INPUTS:
        return None
    if any(tensor(node) is None for node in (*inputs, *outputs)):
        return None
    return Region(tuple(kept), inputs, outputs)


def _ends_early(node: Node, own: Sequence[Node]) -> bool:
    """Check whether the region may end before this node.

    Nothing of it goes on, and the memory it views lies as well as its result does, or better.
    """
    if kind(node) not in _FREE or any(user in own for user in node.users):
        return False
    return not _is_dense(node) or all(_is_dense(source) for source in node.all_input_nodes if source in own)


def _starts_late(node: Node, own: Sequence[Node]) -> bool:
    """Check whether the region may start after this view: its result is as good an input."""
    outside = not any(source in own for source in node.all_input_nodes)
    return kind(node) == "view" and outside and not _is_awkward(node, [other for other in own if other is not node])


def _is_awkward(node: Node, own: Sequence[Node]) -> bool:
    """Check whether a view makes a bad input.

    Strided, several tensors, or one whose memory the region is given anyway.
    """
    if kind(node) != "view":
        return False
    sources = [source for source in node.all_input_nodes if tensor(source) is not None]
    again = any(user in own and user is not node for source in sources for user in source.users)
    return again or not _is_dense(node)


def _is_dense(node: Node) -> bool:
    value = tensor(node)
    return value is not None and value.is_contiguous()


def _edges(nodes: list[Node]) -> tuple[tuple[Node, ...], tuple[Node, ...]]:
    """Return the tensors that nodes take from outside, and the nodes that others use."""
    own = set(nodes)
    inputs = dict.fromkeys(
        source for node in nodes for source in node.all_input_nodes if source not in own and not _is_size(source)
    )
    outputs = tuple(node for node in nodes if any(user not in own for user in node.users))
    return tuple(inputs), outputs


def _is_size(node: Node) -> bool:
    return isinstance(node.meta.get("val"), int) or type(node.meta.get("val")).__name__ == "SymInt"


def _innermost(node: Node) -> str:
    stack = node.meta.get("nn_module_stack") or {}
    names = [str(found[0]) for found in stack.values()]
    return (names[-1] if names else "") or "the model"
