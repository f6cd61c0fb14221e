"""Attention in float32 that keeps few multiprocessors busy, as two products and a softmax.

Of float32 PyTorch has one fused kernel, which gives each block 64 queries of a head. Of few queries and heads that are
fewer blocks than a GPU has multiprocessors, and cuBLAS's products have more. On an H200 (132 multiprocessors) the
products with Inductor's softmax took, by blocks: 24 0.93 of the kernel's time, 32 0.46, 64 0.60 (0.91 with heads of
128), 96 0.86, and 192 1.02 to 1.08. In 16 bits other kernels serve, which gained nothing by it.

The graph is of operators, as Inductor's pass is given it.
"""

from __future__ import annotations

import math
import operator
from typing import Any

import torch
from torch import fx

from . import match
from .places import Builder

QUERIES_PER_BLOCK = 64
SHARE = 0.75
"""Blocks for each multiprocessor, at most: up to where the products were measured to be faster."""
FEWEST_QUERIES, MOST_POSITIONS, LARGEST_HEAD = 128, 1024, 128
"""Queries, queries and keys, elements of a head: what was measured."""
_ATTENTION = torch.ops.aten._scaled_dot_product_efficient_attention.default
_RESHAPE, _BMM, _PERMUTE = torch.ops.aten.reshape.default, torch.ops.aten.bmm.default, torch.ops.aten.permute.default


def write_as_products(graph: fx.Graph) -> None:
    """Compute attention in products where the fused kernel would keep few multiprocessors busy."""
    for node in graph.find_nodes(op="call_function", target=_ATTENTION):
        given = match.named_arguments(node)
        if _is_small(node, given):
            _write(graph, node, given)


def is_allowed() -> bool:
    """Return whether attention may be products: as exact as the kernel, so without TF32, and the caller's choice."""
    try:
        return torch.get_float32_matmul_precision() == "highest" and bool(torch._C._get_math_sdp_enabled())
    except RuntimeError:  # a program that set it by the old interface and by the new one is told nothing
        return False


def _processors(device: torch.device) -> int:
    return int(torch.cuda.get_device_properties(device).multi_processor_count)


def _is_small(node: fx.Node, given: dict[str, Any]) -> bool:
    """Return whether a call of attention is one of fixed sizes, float32 and few blocks, whose result alone is used."""
    if given["attn_bias"] is not None or given["dropout_p"] or given["compute_log_sumexp"]:
        return False
    if any(user.target is not operator.getitem or user.args[1] != 0 for user in node.users):
        return False
    tensors = query, key, value = [given[name].meta["val"] for name in ("query", "key", "value")]
    if any(each.dtype is not torch.float32 or any(type(size) is not int for size in each.shape) for each in tensors):
        return False
    batch, heads, queries, width = query.shape
    is_measured = queries >= FEWEST_QUERIES and max(queries, key.shape[2]) <= MOST_POSITIONS
    if not is_measured or max(width, value.shape[3]) > LARGEST_HEAD:
        return False
    return bool(batch * heads * -(-queries // QUERIES_PER_BLOCK) <= SHARE * _processors(query.device))


def _write(graph: fx.Graph, node: fx.Node, given: dict[str, Any]) -> None:
    build = Builder(graph, node)
    query, key, value = (given[name] for name in ("query", "key", "value"))
    batch, heads, queries, width = query.meta["val"].shape
    keys = key.meta["val"].shape[2]
    flat = [build.call(_RESHAPE, each, [batch * heads, *each.meta["val"].shape[2:]]) for each in (query, key, value)]
    scores = build.call(_BMM, flat[0], build.call(_PERMUTE, flat[1], [0, 2, 1]))
    scale = given["scale"]
    scores = build.call(torch.ops.aten.mul.Tensor, scores, 1 / math.sqrt(width) if scale is None else scale)
    if given["is_causal"]:
        device = query.meta["val"].device
        # Keys behind a query; both count from the first, as attention's flag has it.
        rows, columns = (_counted(build, size, device) for size in (queries, keys))
        hidden = build.call(torch.ops.aten.gt.Tensor, columns, build.call(torch.ops.aten.unsqueeze.default, rows, 1))
        lowest = build.call(
            torch.ops.aten.full.default, [], -math.inf, dtype=torch.float32, device=device, pin_memory=False
        )
        scores = build.call(torch.ops.aten.where.self, hidden, lowest, scores)
    largest = build.call(torch.ops.aten.amax.default, scores, [-1], True)
    weights = build.call(torch.ops.aten.exp.default, build.call(torch.ops.aten.sub.Tensor, scores, largest))
    total = build.call(torch.ops.aten.sum.dim_IntList, weights, [-1], True)
    weights = build.call(torch.ops.aten.div.Tensor, weights, total)
    result = build.call(_RESHAPE, build.call(_BMM, weights, flat[2]), [batch, heads, queries, -1])
    # In memory as the kernel leaves it: what follows views it as positions of all heads.
    turned = build.contiguous(build.call(_PERMUTE, result, [0, 2, 1, 3]))
    result = build.call(_PERMUTE, turned, [0, 2, 1, 3])
    for user in list(node.users):
        user.replace_all_uses_with(result)
        graph.erase_node(user)
    graph.erase_node(node)


def _counted(build: Builder, size: int, device: torch.device) -> fx.Node:
    return build.call(
        torch.ops.prims.iota.default, size, start=0, step=1, dtype=torch.int64, device=device, requires_grad=False
    )
