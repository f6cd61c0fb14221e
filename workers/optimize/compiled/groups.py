"""Keys and values that are repeated for groups of queries, given to attention as they are.

A model whose mask is traced repeats each head of keys and values for all queries that share it, since with a mask
PyTorch has no fast kernel for groups. Once the mask is out (`masks`) a flag says the same, and what was repeated need
neither be written nor read: in a Llama-1B's prefill of 2048 tokens 16 MiB a layer.

The graph is Dynamo's. A repetition is `x[:, :, None].expand(...)` and a view of that, or `repeat_interleave`.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import fx

from . import inductor
from .masks import ATTENTION, argument, given, written

_HEADS, _RANK = 1, 4
"""Attention's tensors: batch, heads, positions, elements of a head."""


def share_heads(graph: fx.GraphModule) -> list[str]:
    """Give attention without a mask the heads that are repeated for it; returns the names of those calls.

    Only where PyTorch computes both with the same kernel.
    """
    nodes = list(graph.graph.nodes)
    order = {node: position for position, node in enumerate(nodes)}
    shared = []
    for node in nodes:
        if node.op != "call_function" or node.target is not ATTENTION or node.kwargs.get("enable_gqa"):
            continue
        if argument(node, "attn_mask") is not None or argument(node, "dropout_p"):
            continue
        if any(isinstance(argument(node, name), fx.Node) for name in ("scale", "is_causal")):
            continue  # sizes decide it, so which kernel PyTorch takes is not known
        query, *repeated = (argument(node, name) for name in ("query", "key", "value"))
        if len(_shape(query)) != _RANK or any(_shape(each)[1:2] != _shape(query)[1:2] for each in repeated):
            continue  # one head of queries for all keys is broadcast, and no group
        own = [_unrepeated(each) for each in repeated]
        begun = min(order[each] for each in repeated)
        if any(any(True for _ in written(each)) for each in nodes[begun : order[node]]):
            continue  # it may write to what was repeated
        key, value = own
        if key is None or value is None or not _alike(node, (query, *repeated), (query, key, value)):
            continue
        rest = {name: each for name, each in given(node).items() if name not in ("query", "key", "value")}
        node.args, node.kwargs = (query, key, value), {**rest, "enable_gqa": True}
        for each in repeated:
            _erase_unused(each)
        shared.append(node.name)
    if shared:
        graph.graph.lint()
        graph.recompile()
    return shared


def _unrepeated(node: fx.Node) -> fx.Node | None:
    """Return the node whose every head this one has several times, one behind the other; None where it is none."""
    source = _interleaved(node) if _called(node) == "repeat_interleave" else _expanded(node)
    if source is None:
        return None
    shape, before = _shape(node), _shape(source)
    if len(shape) != _RANK or len(before) != _RANK or shape[_HEADS] == before[_HEADS]:
        return None
    return source if (*before[:_HEADS], shape[_HEADS], *before[_HEADS + 1 :]) == shape else None


def _interleaved(node: fx.Node) -> fx.Node | None:
    """Return what `repeat_interleave` repeats along the heads, a number of times."""
    source, *rest = node.args or (node.kwargs.get("input"),)
    told = dict(zip(("repeats", "dim"), rest, strict=False)) | dict(node.kwargs)
    if told.get("dim") not in (_HEADS, _HEADS - _RANK) or not isinstance(told.get("repeats"), int):
        return None
    return source if isinstance(source, fx.Node) else None


def _expanded(node: fx.Node) -> fx.Node | None:
    """Return what got an axis behind that of heads, was expanded along it, and is viewed as more heads."""
    expanded = next(iter(node.all_input_nodes), None)
    if _called(node) not in ("reshape", "view") or expanded is None or _called(expanded) != "expand":
        return None
    begun = next(iter(expanded.all_input_nodes), None)
    source = next(iter(begun.all_input_nodes), None) if begun is not None and _new_axis(begun) else None
    if begun is None or source is None:
        return None
    before, one, most = _shape(source), _shape(begun), _shape(expanded)
    if len(most) != _RANK + 1 or one != (*before[: _HEADS + 1], 1, *before[_HEADS + 1 :]):
        return None
    return source if (*one[: _HEADS + 1], *one[_HEADS + 2 :]) == (*most[: _HEADS + 1], *most[_HEADS + 2 :]) else None


def _new_axis(node: fx.Node) -> bool:
    """Return whether a node is its input with one axis more, behind that of heads."""
    if _called(node) == "unsqueeze":
        return (node.kwargs["dim"] if "dim" in node.kwargs else node.args[-1]) in (_HEADS + 1, _HEADS - _RANK)
    index = node.args[1] if _called(node) == "getitem" else None
    everything = slice(None, None, None)
    if not isinstance(index, tuple) or not index:
        return False
    rest = (index[:-1] if index[-1] is Ellipsis else index)[_HEADS + 2 :]
    return index[: _HEADS + 2] == (*[everything] * (_HEADS + 1), None) and all(each == everything for each in rest)


def _called(node: fx.Node) -> str:
    return str(node.target if node.op == "call_method" else getattr(node.target, "__name__", ""))


def _shape(node: fx.Node) -> tuple[Any, ...]:
    value = node.meta.get("example_value")
    return tuple(value.shape) if isinstance(value, torch.Tensor) else ()


def _alike(call: fx.Node, *choices: tuple[fx.Node, ...]) -> bool:
    """Return whether PyTorch takes the same kernel for attention on these queries, keys and values."""
    found, told = set(), given(call)
    causal, scale = bool(told.get("is_causal")), told.get("scale")
    for nodes in choices:
        sized = [inductor.sized(node.meta["example_value"]) for node in nodes]
        with inductor.outside():
            tensors = [
                torch.empty_strided(tuple(each.shape), each.stride(), dtype=each.dtype, device=each.device)
                for each in sized
                if each is not None
            ]
            if len(tensors) < len(nodes):
                return False
            query, key, value = tensors
            grouped = query.shape[_HEADS] != key.shape[_HEADS]
            found.add(torch._fused_sdp_choice(query, key, value, is_causal=causal, scale=scale, enable_gqa=grouped))
    return len(found) == 1


def _erase_unused(node: fx.Node) -> None:
    """Erase a repetition that nothing uses any longer: its view, the expansion, the axis."""
    for _ in range(3):
        first = next(iter(node.all_input_nodes), None)
        if node.users or first is None or any(True for _ in written(node)):
            return
        node.graph.erase_node(node)
        node = first
