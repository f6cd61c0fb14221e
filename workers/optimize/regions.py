"""Find connected parts of a model's graph that one kernel could compute.

Pure functions of a graph of operators, decomposed and functional. A region grows along the graph's edges, in its
order. Pointwise operators, reductions, normalisations, gathers and copies in a chain are one region. A matrix product
takes with it the element-wise operators that follow, but leaves those that lead to a reduction or a normalisation to
that one, and those that work on its result in another order of axes. Two products are one region only around a softmax.
Copies go with a product of two activations, or an attention, that they feed. Views cost nothing: they belong to the
operators whose strides they save, or whose rows they flatten. No path leaves a region and comes back. `joined` makes
larger regions of these.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from torch.fx import Graph, Node

from warpsmith.workers.optimize import labels
from warpsmith.workers.optimize.operators import FUSABLE, Kind, kind, name, tensor, weight

MOST_OUTPUTS = 2
MOST_INPUTS = 12
_ROOT = re.compile(r"^L\['\w+'\]\.?")
"""What Dynamo calls the model in the names of its modules."""
_FARTHEST = 6
"""Operators that are looked ahead to find out what something leads to."""
_HEAVY: tuple[Kind, ...] = ("product", "attention")
_FREE: tuple[Kind, ...] = ("view", "source")
"""Kinds of operators that cost nothing by themselves."""
_ROWS: tuple[Kind, ...] = ("reduction", "normalisation")


@dataclass(frozen=True)
class Region:
    """A connected part of a graph.

    `nodes` in the graph's order; `inputs` are the tensors from outside, activations before weights, otherwise in the
    order of their first use; `outputs` the nodes that others use. `parts`: the regions that it joins, none for one
    that `find` found.
    """

    nodes: tuple[Node, ...]
    inputs: tuple[Node, ...]
    outputs: tuple[Node, ...]
    parts: tuple[Region, ...] = ()

    @property
    def title(self) -> str:
        """The operators that cost something, in order."""
        return labels.title(self.nodes)

    @property
    def modules(self) -> str:
        """Names of the modules whose code the region is, with what they have in common said once."""
        return _shared(list(dict.fromkeys(_innermost(node) for node in self.nodes if kind(node) not in _FREE)))


def find(graph: Graph) -> list[Region]:
    """Find the regions of a graph that cost something, in its order.

    Every operator that could be in a kernel is in one.
    """
    grower = _Grower(graph)
    for node in graph.nodes:
        if kind(node) in FUSABLE:
            grower.place(node)
    order = {node: number for number, node in enumerate(graph.nodes)}
    return [region for nodes in grower.groups() if (region := region_of(nodes, order)) is not None]


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
                if _is_turned(source, node):
                    continue
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
    both = {labels.of(node) for node in first + second}
    costly = [
        node
        for node in _edges(first + second)[1]
        if kind(node) not in _FREE and any(labels.of(user) not in both for user in node.users)
    ]
    if len(costly) > MOST_OUTPUTS:  # what is left of a thing that has begun comes later
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
        return not costs or (all(map(_is_copy, costs)) and all(map(_takes_copies, heavy_after)))
    return True


def _is_turned(source: Node, user: Node) -> bool:
    """Check whether a node works on a product's result behind a view of another order of axes."""
    turned = False
    while kind(source) == "view" and source.all_input_nodes:
        turned |= name(source) in ("permute", "transpose", "t")
        source = source.all_input_nodes[0]
    return turned and kind(source) in _HEAVY and kind(user) not in (*_FREE, *_HEAVY)


def _leads_to_rows(node: Node) -> bool:
    """Check whether operators after a product belong to a later reduction or normalisation."""
    if _is_softmax(node):
        return False

    def reduces(other: Node) -> bool:
        return kind(other) in _ROWS and not _is_softmax(other)

    return reduces(node) or _leads_to(node, ("pointwise", *_FREE), reduces)


def _waits_for_product(node: Node) -> bool:
    """Check whether a copy belongs to a product of two activations, or an attention, that it feeds."""
    return _is_copy(node) and _leads_to(node, _FREE, _takes_copies)


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
    return labels.of(node)[0] == "softmax"


def _is_copy(node: Node) -> bool:
    """Check whether a node makes what a product might read itself: a copy, or a mask of numbers from one of flags."""
    if name(node) == "where" and all(isinstance(each, Node) and name(each) == "full" for each in node.args[1:]):
        return _leads_to(node, _FREE, lambda user: kind(user) == "attention")
    return kind(node) == "copy"


def _takes_copies(node: Node) -> bool:
    """Check whether a node is an attention, or a product without weights."""
    return kind(node) == "attention" or (kind(node) == "product" and labels.of(node)[0] not in ("linear", "conv"))


def region_of(nodes: Sequence[Node], order: Mapping[Node, int], most_outputs: int = MOST_OUTPUTS) -> Region | None:
    """Return the region with the views at its ends that save strides or flatten rows, and no others.

    None where nothing is left that costs, or where it has more inputs or outputs than a kernel is given. order: the
    positions of the graph's nodes.
    """
    kept = sorted(nodes, key=order.__getitem__)
    while gone := {node for node in kept if _ends_early(node, kept) or _starts_late(node, kept)}:
        kept = [node for node in kept if node not in gone]
    while more := {node for node in _edges(kept)[0] if _is_awkward(node, kept)}:
        kept = sorted({*kept, *more}, key=order.__getitem__)
    inputs, outputs = _edges(kept)
    outputs = tuple(node for node in outputs if node in nodes)  # a view that was taken along stays where it was, too
    if not any(kind(node) not in _FREE for node in kept):
        return None
    if not 1 <= len(outputs) <= most_outputs or not 1 <= len(inputs) <= MOST_INPUTS:
        return None
    if any(tensor(node) is None for node in (*inputs, *outputs)):
        return None
    return Region(tuple(kept), tuple(sorted(inputs, key=lambda node: weight(node) is not None)), outputs)


def _ends_early(node: Node, own: Sequence[Node]) -> bool:
    """Check whether the region may end before this node.

    Nothing of it goes on, and the memory it views lies as well as its result does, or better.
    """
    if kind(node) not in _FREE or any(user in own for user in node.users) or _makes_rows(node):
        return False
    return not _is_dense(node) or all(_is_dense(source) for source in node.all_input_nodes if source in own)


def _starts_late(node: Node, own: Sequence[Node]) -> bool:
    """Check whether the region may start after this view: its result is as good an input."""
    outside = not any(source in own for source in node.all_input_nodes)
    return kind(node) == "view" and outside and not _is_awkward(node, [other for other in own if other is not node])


def _is_awkward(node: Node, own: Sequence[Node]) -> bool:
    """Check whether a view makes a bad input.

    Strided, several tensors, rows flattened for a product, or one whose memory the region is given anyway. A constant
    is computed inside, too.
    """
    if kind(node) != "view":
        return kind(node) == "source" and not node.all_input_nodes
    if any(user in own and _takes_flat(node, user) for user in node.users):
        return True
    sources = [source for source in node.all_input_nodes if tensor(source) is not None]
    again = any(user in own and user is not node for source in sources for user in source.users)
    return again or not _is_dense(node)


def _takes_flat(view: Node, user: Node) -> bool:
    """Check whether a view makes the rows of a product one axis, which were several."""
    (source, *others) = view.all_input_nodes
    value, before = tensor(view), tensor(source)
    if others or value is None or before is None or kind(user) != "product" or value.dim() >= before.dim():
        return False
    return value.dim() == 2 and value.shape[-1] == before.shape[-1] and before.is_contiguous()


def _makes_rows(view: Node) -> bool:
    """Check whether a view is all that is taken of a product, and makes its rows several axes again."""
    (source, *others) = view.all_input_nodes or (view,)
    value, before = tensor(view), tensor(source)
    if others or value is None or before is None or kind(source) != "product" or len(source.users) > 1:
        return False
    return value.dim() > before.dim() == 2 and value.shape[-1] == before.shape[-1]


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
    return _ROOT.sub("", names[-1] if names else "") or "the model"


def _shared(names: list[str]) -> str:
    """Join names of modules: "layers.0: norm, q_proj"."""
    if len(names) < 2:
        return "".join(names)
    paths = [name.split(".") for name in names]
    common: list[str] = []
    for parts in zip(*paths, strict=False):
        if len(set(parts)) > 1:
            break
        common.append(parts[0])
    rest = [".".join(path[len(common) :]) for path in paths]
    return f"{'.'.join(common)}: {', '.join(filter(None, rest))}" if common else ", ".join(names)
