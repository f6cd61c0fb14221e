"""Large products that add themselves to a residual, as cuBLAS can, where Inductor has another kernel add them.

A residual that a product is added to is read by the product itself, which adds in float32 and rounds once, and written
to the same memory. Inductor has the product written, and adds it again in each norm that reads the sum.

The graph is of operators, as Inductor's pass is given it.
"""

from __future__ import annotations

import hashlib
import operator
from pathlib import Path
from typing import Any

import torch
from torch import fx

from . import inductor, match
from .bounds import erase
from .places import Builder

WORTH = 1 << 20
"""Elements of a result, at least: below, what is spared is less than a launch."""
_MM, _ADD = torch.ops.aten.mm.default, torch.ops.aten.add.Tensor
_RESHAPED = (torch.ops.aten.view.default, torch.ops.aten.reshape.default)
_HALF = (torch.bfloat16, torch.float16)

_library: Any = torch.library.Library("warpsmith", "FRAGMENT")  # type: ignore[no-untyped-call]


def _add_product(total: torch.Tensor, x: torch.Tensor, weight: torch.Tensor) -> None:
    """Add x @ weight.T to total (rows, columns), in place; x: (rows, inner), weight: (columns, inner)."""
    total.addmm_(x, weight.t())


_DIGEST = hashlib.sha256(Path(__file__).read_bytes()).hexdigest()[:12]
"""In the operators' names, so that copies in exported packages are one where they are alike, and else two."""


def _operator() -> torch._ops.OpOverload:
    name = f"add_product_{_DIGEST}"
    if not hasattr(torch.ops.warpsmith, name):
        _library.define(f"{name}(Tensor(a!) total, Tensor x, Tensor weight) -> ()")
        _library.impl(name, _add_product, "CompositeExplicitAutograd")
        inductor.register_fake(f"warpsmith::{name}", lambda total, x, weight: None, _library)
    found: torch._ops.OpOverload = getattr(torch.ops.warpsmith, name).default
    return found


ADD = _operator()


def add_in_place(graph: fx.Graph) -> None:
    """Let products add themselves to the sum that nothing reads any longer as it was."""
    order = {node: position for position, node in enumerate(graph.nodes)}
    for node in [each for each in graph.nodes if each.target is _ADD]:
        parts = _sum_of(node)
        if parts is None:
            continue
        total, product = parts
        factors = _factors(product)
        if factors is None or not _is_last(total, node, order):
            continue
        build = Builder(graph, node)
        flat = build.call(torch.ops.aten.reshape.default, total, list(product.meta["val"].shape))
        target, named = inductor.functional(ADD, (flat, *factors))
        summed = build.call(operator.getitem, build.call(target, ADD, **named), 1)
        result = build.call(torch.ops.aten.reshape.default, summed, list(node.meta["val"].shape))
        node.replace_all_uses_with(result)
        order |= dict.fromkeys((flat, *flat.users, summed, result), order[node])
        erase(node)
        inductor.keep_as_calls([ADD])


def _sum_of(node: fx.Node) -> tuple[fx.Node, fx.Node] | None:
    """Return what a product is added to, and the product that nothing else reads; None where a node is no such sum."""
    value = node.meta["val"]
    pair = node.all_input_nodes  # one where a number is added, or a node to itself
    if node.kwargs or len(pair) != 2:  # a factor of what is added is named
        return None
    for given, total in (pair, pair[::-1]):
        product, added = _flat(given), total.meta["val"]
        alike = added.shape == value.shape and added.dtype == value.dtype and added.is_contiguous()
        if alike and len(product.users) == 1 and _factors(product) and product.meta["val"].dtype == value.dtype:
            return total, product
    return None


def _factors(node: fx.Node) -> tuple[fx.Node, fx.Node] | None:
    """Return x and weight of a product x @ weight.T that is large, of fixed sizes and a dtype of 16 bits."""
    if node.target is not _MM:
        return None
    x, turned = node.args
    value = node.meta["val"]
    if turned.target is not torch.ops.aten.permute.default or value.dtype not in _HALF:  # type: ignore[union-attr]
        return None
    weight = turned.args[0]  # type: ignore[union-attr]
    if not all(type(size) is int for size in value.shape) or value.numel() < WORTH:
        return None
    if not x.meta["val"].is_contiguous() or not weight.meta["val"].is_contiguous():  # type: ignore[union-attr]
        return None
    return x, weight  # type: ignore[return-value]


def _flat(node: fx.Node) -> fx.Node:
    """Return what a node has in another shape, as long as nothing else reads it."""
    while node.target in _RESHAPED and len(node.users) == 1:
        node = node.all_input_nodes[0]
    return node


def _source(node: fx.Node) -> fx.Node:
    """Return what a node is a view of."""
    while match.is_view(node) and node.all_input_nodes:
        node = node.all_input_nodes[0]
    return node


def _is_last(total: fx.Node, last: fx.Node, order: dict[fx.Node, int]) -> bool:
    """Return whether no later node than `last` reads this memory, which is the graph's own."""
    source = _source(total)
    if source.op != "call_function":
        return False
    pending, seen = [source], set()
    while pending:
        for user in pending.pop().users:
            if user in seen:
                continue
            seen.add(user)
            if user is not last and (user.op == "output" or order[user] > order[last]):
                return False
            if match.is_view(user):
                pending.append(user)
    return True
