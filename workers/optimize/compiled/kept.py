"""Sines and cosines that many elements share, computed once.

Inductor computes a pointwise value again wherever it is read, as long as it reads little itself. For an angle of any
size a sine or a cosine takes tens of instructions: the rotary embedding of a Llama-1B's prefill of 2048 tokens, whose
table has 131072 elements, computed it for each of 2.6 million elements of queries and keys, in each of 16 layers.

The graph is of operators, as Inductor's pass is given it.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import fx

from . import inductor, match

_LONG = (torch.ops.aten.sin.default, torch.ops.aten.cos.default)
"""Operators that take long for one element, and read little."""
_NEXT = (
    torch.ops.aten.mul.Tensor,
    torch.ops.aten.mul.Scalar,
    torch.ops.aten.neg.default,
    torch.ops.prims.convert_element_type.default,
)
"""Operators of one tensor behind them, kept with them: a factor, a conversion that halves the size."""
WORTH = 1 << 20
"""Elements that are spared, at least: below, the launch that keeps the values costs what they cost again."""


def keep_shared(graph: fx.Graph) -> None:
    """Let Inductor compute sines and cosines once where that spares many elements."""
    for node in [each for each in graph.nodes if each.target in _LONG]:
        last = _last(node)
        spared = sum(max(_size(reader), _size(last)) for reader in dict.fromkeys(_readers(last))) - _size(last)
        if spared >= WORTH:
            inductor.keep(last)


def _last(node: fx.Node) -> fx.Node:
    """Return the last of the operators of one tensor that lead on from here."""
    while len(node.users) == 1:
        (user,) = node.users
        if user.target not in _NEXT or user.all_input_nodes != [node]:
            break
        node = user
    return node


def _readers(node: fx.Node) -> Iterator[fx.Node]:
    """Yield what computes with a value, or with a view of it."""
    for user in node.users:
        if match.is_view(user):
            yield from _readers(user)
        elif user.op == "call_function":
            yield user


def _size(node: fx.Node) -> int:
    """Return the number of elements of a value, 0 where it is not known."""
    value = node.meta.get("val")
    sized = inductor.sized(value) if isinstance(value, torch.Tensor) else None
    return 0 if sized is None else sized.numel()
