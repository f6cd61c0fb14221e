"""Where an op's computation occurs in a model's graph: the same operators, joined in the same way.

Sizes may differ, since an op's reference is traced on sizes of its own; every other constant must be the same. Some
integers are sizes and do not look so (the length of a range, where a slice ends, the k of a topk): a place with others
is found, too. It is one only where the reference has the same when it is traced on the sizes there (`agrees`). Whether
a place computes the same numbers is for whoever calls this to check. Pure functions of graphs.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch.fx import Graph, Node

_SAME = {
    "aten.view.default": "aten.reshape.default",
    "aten._unsafe_view.default": "aten.reshape.default",
}
"""Operators that are another one but for what they do with memory."""
_COMMUTATIVE = ("aten.add.Tensor", "aten.mul.Tensor")
_PLACE = ("device", "layout", "pin_memory", "cudnn_enable", "cudnn_enabled")
"""Arguments that say where a tensor lies or by which library it is computed, and not what is in it."""
_SIZES = ("size", "shape", "normalized_shape")
"""Arguments that are sizes."""
_LENGTHS = ("length", "start", "end", "split_size", "split_sizes", "k", "bins")
"""Arguments that are sizes more often than not, and are told from constants nowhere."""
_NO_LENGTHS = (0, 2**63 - 1)
"""The first element, and behind the last one."""
INDICES = {
    "aten.topk.default": 1,
    "aten.sort.default": 1,
    "aten.sort.stable": 1,
    "aten.max.dim": 1,
    "aten.min.dim": 1,
}
"""Operators of which this result holds indices along an axis of what they are given: int64, and below its size."""
_CONSTANT = ("aten.full.default", "prims.iota.default")
"""Operators that are the same whenever they are computed, where no tensor goes in."""
_AXES = ("dim", "dims", "dim0", "dim1")
"""Arguments that are axes."""
_MORE_AXES = ("aten.unsqueeze.default", "aten.stack.default")
"""Operators whose axes are those of the result, which has one more."""


@dataclass(frozen=True)
class Pattern:
    """An op's reference as a graph: its tensor arguments in order, the results, and behind them what it leaves in the
    arguments that it writes to. `numbers` are constants of it that stand for arguments: a place may have any other in
    their stead. `uncast` are the positions of results that are taken before the cast which the op ends with.
    """

    inputs: tuple[Node, ...]
    outputs: tuple[Node, ...]
    numbers: tuple[float, ...] = ()
    uncast: tuple[int, ...] = ()

    @classmethod
    def of(cls, graph: Graph, numbers: Sequence[float] = (), mutated: Sequence[int] = ()) -> Pattern:
        """Of a graph of operators, which writes to its inputs at the end alone; `mutated` are those that it is to
        write to. A result that is an argument itself is no computation: raises ValueError, as for other writes.
        """
        inputs = tuple(node for node in graph.nodes if node.op == "placeholder")
        result = next(node for node in graph.nodes if node.op == "output").args[0]
        outputs = () if result is None else tuple(result) if isinstance(result, tuple | list) else (result,)
        written = {node.args[0]: node.args[1] for node in graph.nodes if is_write_back(node)}
        if set(written) != {inputs[position] for position in mutated}:
            raise ValueError("its reference does not write to the arguments that it is declared to write to")
        outputs = tuple(each for each in outputs if each is not None)
        outputs += tuple(written[inputs[position]] for position in mutated)
        if not outputs or any(not isinstance(node, Node) or node.op != "call_function" for node in outputs):
            raise ValueError("its reference returns what it was given, or nothing that it computes")
        return cls(inputs, outputs, tuple(numbers))

    def as_int64(self) -> Pattern | None:
        """Return the pattern whose indices are int64, as PyTorch's operators give them; None where they are already.

        A model takes them so, and an op may return them as int32: a cast of its results gives the same, for an index
        is below the size of an axis, where no axis has 2^31 elements.
        """
        bare = {at: index for at, node in enumerate(self.outputs) if (index := _narrowed_index(node)) is not None}
        outputs = tuple(bare.get(at, node) for at, node in enumerate(self.outputs))
        return replace(self, outputs=outputs, uncast=tuple(bare)) if bare else None


@dataclass(frozen=True)
class Match:
    """One occurrence. `inputs` are bound to the pattern's, `outputs` give its results, `nodes` are all that compute
    them, in the graph's order; `numbers` are what it has for the pattern's, None for one that does not occur; counted:
    it has integers that sizes may decide; resized: some of them may well be sizes, or are not the pattern's; uncast:
    the pattern's.
    """

    inputs: tuple[Node, ...]
    outputs: tuple[Node, ...]
    nodes: tuple[Node, ...]
    numbers: tuple[float | None, ...] = ()
    counted: bool = False
    resized: bool = False
    uncast: tuple[int, ...] = ()


@dataclass(frozen=True)
class _Bound:
    """What of the pattern is what of the graph, so far."""

    nodes: dict[Node, Node] = field(default_factory=dict)
    numbers: dict[float, float] = field(default_factory=dict)
    taken: frozenset[Node] = frozenset()
    counted: bool = False
    resized: bool = False

    def with_node(self, ours: Node, theirs: Node) -> _Bound:
        taken = self.taken | {theirs} if ours.op == "call_function" else self.taken
        return replace(self, nodes=self.nodes | {ours: theirs}, taken=taken)

    def with_number(self, ours: float, theirs: float) -> _Bound:
        return replace(self, numbers=self.numbers | {ours: theirs})


Arguments = dict[Node, tuple[list[str], list[Any]]]
"""Calls with the names and values of their arguments, as far as they were read."""


def find(
    pattern: Pattern,
    graph: Graph,
    accepted: Callable[[Match], bool] = lambda _: True,
    arguments: Arguments | None = None,
) -> list[Match]:
    """Every occurrence that shares no node but views with another, in the graph's order. What it computes on the way is
    used by nobody else, nothing outside of it stands between its nodes, and `accepted` says yes to it.

    arguments: of calls of this graph, as they were read for other patterns.
    """
    finder = _Finder(frozenset(pattern.numbers), {} if arguments is None else arguments)
    order = {node: number for number, node in enumerate(graph.nodes)}
    used: set[Node] = set()
    found = []
    named = _name(pattern.outputs[0])
    for anchor in [node for node in order if node.op == "call_function" and _name(node) == named]:
        for found_here in _bindings(finder, pattern, anchor, graph):
            bound = found_here.nodes
            nodes = {
                theirs for ours, theirs in bound.items() if ours.op == "call_function" and theirs.op == "call_function"
            }
            if {node for node in nodes if not is_view(node)} & used or any(
                ours not in bound for ours in pattern.inputs
            ):
                continue
            outputs = tuple(bound[ours] for ours in pattern.outputs)
            inside = [node for node in nodes if node not in outputs and (_is_part(node, nodes) or not is_view(node))]
            if any(user not in nodes for node in inside for user in node.users) or not convex(nodes, order):
                continue
            inputs = tuple(bound[ours] for ours in pattern.inputs)
            numbers = _numbers(pattern, found_here)
            in_order = tuple(sorted(nodes, key=order.__getitem__))
            match = Match(inputs, outputs, in_order, numbers, found_here.counted, found_here.resized, pattern.uncast)
            if accepted(match):
                found.append(match)
                used |= nodes
                break
    return found


def agrees(pattern: Pattern, found: Match) -> bool:
    """Whether an occurrence of a pattern is one of this one, too, with the same inputs and every integer the same."""
    finder = _Finder(frozenset(pattern.numbers), {}, exact=True)
    pairs = list(zip((*pattern.inputs, *pattern.outputs), (*found.inputs, *found.outputs), strict=True))
    return any(
        _numbers(pattern, bound) == found.numbers and all(bound.nodes.get(ours) is theirs for ours, theirs in pairs)
        for bound in _bindings(finder, pattern, found.outputs[0], found.outputs[0].graph)
    )


def _numbers(pattern: Pattern, bound: _Bound) -> tuple[float | None, ...]:
    return tuple(bound.numbers.get(number) for number in pattern.numbers)


def is_view(node: Node) -> bool:
    """Whether a node only looks at memory of another, or is a constant, and so may be computed twice."""
    if node.target is operator.getitem or (str(node.target) in _CONSTANT and not node.all_input_nodes):
        return True
    schema = getattr(node.target, "_schema", None)
    return schema is not None and not schema.is_mutable and any(item.alias_info for item in schema.returns)


def _is_part(node: Node, nodes: set[Node]) -> bool:
    """Whether a node is one of several results that others of these nodes compute: whoever reads it needs all that."""
    source = node.args[0] if node.target is operator.getitem else None
    return isinstance(source, Node) and source in nodes and not is_view(source)


def _narrowed_index(node: Node) -> Node | None:
    """The indices of an operator that a node casts to int32; None where it does not."""
    if str(node.target) != "prims.convert_element_type.default" or node.args[1] is not torch.int32:
        return None
    taken = node.args[0]
    if not isinstance(taken, Node) or taken.target is not operator.getitem or not isinstance(taken.args[0], Node):
        return None
    return taken if INDICES.get(str(taken.args[0].target)) == taken.args[1] else None


def is_write_back(node: Node) -> bool:
    """Whether a node leaves a value in an input of the graph, which is done at its end alone."""
    target = node.args[0] if str(node.target) == "aten.copy_.default" else None
    return isinstance(target, Node) and target.op == "placeholder"


def named_arguments(node: Node) -> dict[str, Any]:
    """Return the arguments of an operator's call by name, with its defaults."""
    assert isinstance(node.target, torch._ops.OpOverload)
    arguments = node.target._schema.arguments
    told = dict(zip((each.name for each in arguments), node.args, strict=False)) | dict(node.kwargs)
    return {each.name: told.get(each.name, each.default_value) for each in arguments}


def convex(nodes: set[Node], order: Mapping[Node, int] | None = None) -> bool:
    """Whether no path leaves the nodes and comes back.

    order: the position of each node of the graph; what comes behind the last of these nodes is not looked at then.
    """
    seen: set[Node] = set()
    waiting = [user for node in nodes for user in node.users if user not in nodes]
    last = max((order[node] for node in nodes), default=0) if order is not None else 0
    while waiting:
        node = waiting.pop()
        if node in seen or (order is not None and order[node] > last):
            continue
        seen.add(node)
        for user in node.users:
            if user in nodes:
                return False
            waiting.append(user)
    return True


def _bindings(finder: _Finder, pattern: Pattern, anchor: Node, graph: Graph) -> Iterator[_Bound]:
    """Ways in which the pattern's results can be nodes of the graph, the first one being `anchor`."""
    yield from finder.outputs(pattern.outputs[1:], graph, finder.node(pattern.outputs[0], anchor, _Bound()))


@dataclass(frozen=True)
class _Finder:
    """Finds a pattern whose `numbers` are those of its constants that stand for arguments.

    exact: integers are the pattern's own.
    """

    numbers: frozenset[float]
    read: Arguments
    exact: bool = False

    def outputs(self, rest: Sequence[Node], graph: Graph, so_far: Iterator[_Bound]) -> Iterator[_Bound]:
        for bound in so_far:
            if not rest:
                yield bound
                continue
            for candidate in _candidates(rest[0], bound, graph):
                yield from self.outputs(rest[1:], graph, self.node(rest[0], candidate, bound))

    def node(self, ours: Node, theirs: Node, bound: _Bound) -> Iterator[_Bound]:
        """Extensions of `bound` under which the pattern's node is the graph's."""
        if ours in bound.nodes:
            if bound.nodes[ours] is theirs:
                yield bound
            return
        if ours.op == "placeholder":
            if isinstance(theirs.meta.get("val"), torch.Tensor):
                yield bound.with_node(ours, theirs)
            return
        if ours.op != "call_function" or theirs.op != "call_function" or _name(ours) != _name(theirs):
            return
        if theirs in bound.taken:
            return
        names, mine = self._arguments(ours)
        names_there, other = self._arguments(theirs)
        if names != names_there:
            return
        orders = [list(zip(mine, other, strict=True))]
        if _name(ours) in _COMMUTATIVE and isinstance(ours.args[0], Node) and isinstance(ours.args[1], Node):
            orders.append(list(zip(mine, [other[1], other[0], *other[2:]], strict=True)))
        for pairs in orders:
            yield from self._values(pairs, bound.with_node(ours, theirs))

    def _arguments(self, node: Node) -> tuple[list[str], list[Any]]:
        found = self.read.get(node)
        if found is None:
            found = self.read[node] = _arguments(node)
        return found

    def _values(self, pairs: Sequence[tuple[Any, Any]], bound: _Bound) -> Iterator[_Bound]:
        if not pairs:
            yield bound
            return
        (ours, theirs), rest = pairs[0], pairs[1:]
        if isinstance(ours, Node) and isinstance(theirs, Node):
            for extended in self.node(ours, theirs, bound):
                yield from self._values(rest, extended)
        elif isinstance(ours, tuple | list) and isinstance(theirs, tuple | list):
            if len(ours) == len(theirs):
                yield from self._values([*zip(ours, theirs, strict=True), *rest], bound)
        elif isinstance(ours, float) and ours in self.numbers:
            known = bound.numbers.get(ours)
            if isinstance(theirs, float) and known in (None, theirs):
                yield from self._values(rest, bound.with_number(ours, theirs))
        elif _counts(ours) and _counts(theirs):
            if ours == theirs or not self.exact:
                resized = bound.resized or isinstance(ours, _Length) or ours != theirs
                yield from self._values(rest, replace(bound, counted=True, resized=resized))
        elif _same(ours, theirs):
            yield from self._values(rest, bound)


def _candidates(ours: Node, bound: _Bound, graph: Graph) -> list[Node]:
    """Nodes of the graph that may be a node of the pattern: as many steps behind what is bound as that one is."""
    steps, level = 0, [ours]
    while level:
        known = next((node for node in level if node in bound.nodes), None)
        if known is not None:
            found = [bound.nodes[known]]
            for _ in range(steps):
                found = list(dict.fromkeys(user for node in found for user in node.users))
            return found
        steps, level = steps + 1, list(dict.fromkeys(node for each in level for node in each.all_input_nodes))
    return list(graph.nodes)


def _same(ours: Any, theirs: Any) -> bool:
    if isinstance(ours, _Size):
        return isinstance(theirs, _Size)
    return type(ours) is type(theirs) and bool(ours == theirs)


def _counts(value: Any) -> bool:
    return type(value) in (int, _Length)


class _Size:
    """A size in a list of sizes."""


class _Length(int):
    """An integer that may be a size."""


class _Axis(int):
    """An axis, or the number of a result: no integer that sizes decide."""


def _arguments(node: Node) -> tuple[list[str], list[Any]]:
    """Names and values of a call's arguments with their defaults, without those that say where a tensor lies; the
    members of lists of sizes as _Size, what may be a size as _Length, axes as _Axis.
    """
    if not isinstance(node.target, torch._ops.OpOverload):
        given = [_Axis(value) if type(value) is int else value for value in (*node.args, *node.kwargs.values())]
        return [str(n) for n in range(len(node.args))] + list(node.kwargs), given
    names, values = [], []
    for position, argument in enumerate(node.target._schema.arguments):
        if argument.name in _PLACE:
            continue
        value: Any = node.args[position] if position < len(node.args) else node.kwargs.get(argument.name)
        if value is None and argument.has_default_value() and argument.name not in node.kwargs:
            value = argument.default_value
        if argument.name in _SIZES and isinstance(value, tuple | list):
            value = [_Size() for _ in value]
        names.append(_SIZES[0] if argument.name in _SIZES else argument.name)
        if argument.name in _AXES:
            value = _from_the_front(node, value)
        elif argument.name in _LENGTHS:
            value = [_length(each) for each in value] if isinstance(value, tuple | list) else _length(value)
        values.append(list(value) if isinstance(value, tuple | list) else value)
    return names, values


def _length(value: Any) -> Any:
    return _Length(value) if type(value) is int and value not in _NO_LENGTHS else value


def _from_the_front(node: Node, axes: Any) -> Any:
    """Axes counted from the first one, where they are counted from the last."""
    value = next((found for each in node.all_input_nodes if (found := _tensor(each)) is not None), None)
    rank = 0 if value is None else value.dim() + (1 if str(node.target) in _MORE_AXES else 0)

    def axis(one: Any) -> Any:
        return _Axis(one + rank if one < 0 else one) if type(one) is int else one

    return [axis(one) for one in axes] if isinstance(axes, tuple | list) else axis(axes)


def _tensor(node: Node) -> torch.Tensor | None:
    value = node.meta.get("val")
    return value if isinstance(value, torch.Tensor) else None


def _name(node: Node) -> str:
    if node.target is operator.getitem:
        return "getitem"
    return _called(node.target)


@functools.cache
def _called(target: Any) -> str:
    name = str(target)
    return _SAME.get(name, name)
