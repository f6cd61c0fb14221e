"""Conditions on indices that are the same for every value an index can have, taken out of a graph.

An index that `topk`, `sort`, `max` or `min` gives is below the size of the axis that it is of. A model may ask all the
same whether it is not: transformers 5.17 masks the rows of experts that another device has, three times in each layer
of a mixture of experts, on a single device, too. Inductor knows no bounds of values, so it computes such a mask and
selects by it; and what stands between two operators keeps a kernel out that computes both.

The graph is of operators, as Inductor's passes are given it.
"""

from __future__ import annotations

import operator
from typing import Any

import torch
from torch import fx

from . import match

_aten = torch.ops.aten
_WHERE = _aten.where.self
_COMPARED = {
    _aten.ge.Scalar: operator.ge,
    _aten.gt.Scalar: operator.gt,
    _aten.le.Scalar: operator.le,
    _aten.lt.Scalar: operator.lt,
}
"""What is the same for every value of a range where it is the same for the least and the greatest."""
_MOVED = (
    _aten.reshape.default,
    _aten.view.default,
    _aten._unsafe_view.default,
    _aten.permute.default,
    _aten.unsqueeze.default,
    _aten.squeeze.dim,
    _aten.squeeze.dims,
    _aten.expand.default,
    _aten.slice.Tensor,
    _aten.select.int,
    _aten.clone.default,
    _aten.index.Tensor,
)
"""Operators whose results have values of their first tensor, and no others."""
_REORDERED = ("aten.sort.default", "aten.sort.stable", "aten.topk.default")
"""Operators of which the first of several results has values of their first tensor, and no others."""
_CAST = torch.ops.prims.convert_element_type.default


def take_out_conditions(graph: fx.Graph) -> None:
    """Replace what selects by a condition that no value can change with what it selects."""
    for node in [each for each in graph.nodes if each.target is _WHERE]:
        condition, *choices = node.args
        decided = _decided(condition)
        if decided is None:
            continue
        taken = choices[0] if decided else choices[1]
        if _alike(node, taken) and not _leaves(node):
            node.replace_all_uses_with(taken)
            erase(node)


def erase(node: fx.Node) -> None:
    """Erase a node that nothing uses, and what only it used."""
    pending, gone = [node], set()
    while pending:
        one = pending.pop()
        if one in gone or one.users:
            continue
        gone.add(one)
        pending += [each for each in one.all_input_nodes if each.op == "call_function"]
        one.graph.erase_node(one)


def _decided(condition: Any) -> bool | None:
    """Return what a condition is, whatever the values; None where they decide it."""
    while condition.target in _MOVED:
        condition = condition.args[0]
    compare = _COMPARED.get(condition.target)
    bounds = None if compare is None else _bounds(condition.args[0])
    if compare is None or bounds is None or not isinstance(condition.args[1], int | float):
        return None
    least, greatest = (bool(compare(value, condition.args[1])) for value in bounds)
    return least if least == greatest else None


def _bounds(node: Any) -> tuple[int, int] | None:
    """Return the least and the greatest value that a tensor may have; None where they are not known."""
    if node.target in _MOVED:
        return _bounds(node.args[0])
    if node.target is _CAST:
        before, dtype = _bounds(node.args[0]), node.args[1]
        holds = before is not None and dtype in (torch.int32, torch.int64) and before[1] <= torch.iinfo(dtype).max
        return before if holds else None
    if node.target is not operator.getitem or not isinstance(source := node.args[0], fx.Node):
        return None
    called = str(source.target)
    if match.INDICES.get(called) == node.args[1]:
        size = _along(source)
        return None if size is None else (0, size - 1)
    return _bounds(source.args[0]) if called in _REORDERED and node.args[1] == 0 else None


def _along(node: Any) -> int | None:
    """Return the size of the axis along which an operator works; None where it varies, or is empty."""
    shape = node.args[0].meta["val"].shape
    size = shape[match.named_arguments(node)["dim"]] if shape else 1
    return size if isinstance(size, int) and size else None


def _alike(node: fx.Node, other: fx.Node) -> bool:
    """Return whether two values lie alike in memory."""
    values = node.meta["val"], other.meta["val"]
    facts = [(value.dtype, value.device, str(tuple(value.shape)), str(value.stride())) for value in values]
    return facts[0] == facts[1]


def _leaves(node: fx.Node) -> bool:
    """Return whether a value, or a view of it, is a result of the graph or is written to an input at its end.

    It must not be the memory of another value there, which may have been written to before.
    """
    return any(
        user.op == "output" or match.is_write_back(user) or (match.is_view(user) and _leaves(user))
        for user in node.users
    )
