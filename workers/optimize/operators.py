"""The kinds of operators in a model's graph, as far as fusing them is concerned.

Pure functions of nodes.
"""

from __future__ import annotations

import math
import operator
from typing import Any, Literal

import torch
from torch.fx import Graph, Node

Kind = Literal[
    "pointwise", "reduction", "normalisation", "product", "attention", "gather", "view", "copy", "source", "other"
]

_KINDS: dict[Kind, frozenset[str]] = {
    "pointwise": frozenset(
        [
            "abs",
            "add",
            "addcdiv",
            "addcmul",
            "bitwise_and",
            "bitwise_not",
            "bitwise_or",
            "bitwise_xor",
            "ceil",
            "celu",
            "clamp",
            "clamp_max",
            "clamp_min",
            "cos",
            "div",
            "dropout",
            "elu",
            "eq",
            "erf",
            "exp",
            "exp2",
            "expm1",
            "floor",
            "fmod",
            "ge",
            "gelu",
            "gt",
            "hardsigmoid",
            "hardswish",
            "hardtanh",
            "isinf",
            "isnan",
            "le",
            "leaky_relu",
            "lerp",
            "log",
            "log10",
            "log1p",
            "log2",
            "log_sigmoid",
            "logical_and",
            "logical_not",
            "logical_or",
            "lt",
            "masked_fill",
            "maximum",
            "minimum",
            "mish",
            "mul",
            "ne",
            "neg",
            "pow",
            "reciprocal",
            "relu",
            "relu6",
            "remainder",
            "round",
            "rsqrt",
            "rsub",
            "selu",
            "sigmoid",
            "sign",
            "silu",
            "sin",
            "softplus",
            "sqrt",
            "square",
            "sub",
            "tan",
            "tanh",
            "to",
            "trunc",
            "type_as",
            "where",
            "_to_copy",
            "tril",
            "triu",
            "convert_element_type",
            "atan",
            "isfinite",
            "copysign",
            "nan_to_num",
        ]
    ),
    "reduction": frozenset(
        [
            "all",
            "amax",
            "amin",
            "any",
            "argmax",
            "argmin",
            "cumsum",
            "linalg_vector_norm",
            "logsumexp",
            "max",
            "mean",
            "min",
            "norm",
            "prod",
            "std",
            "sum",
            "var",
            "var_mean",
        ]
    ),
    "normalisation": frozenset(
        [
            "batch_norm",
            "group_norm",
            "instance_norm",
            "layer_norm",
            "log_softmax",
            "native_layer_norm",
            "normalize",
            "rms_norm",
            "softmax",
            "_softmax",
            "_log_softmax",
        ]
    ),
    "product": frozenset(
        [
            "addbmm",
            "addmm",
            "addmv",
            "baddbmm",
            "bilinear",
            "bmm",
            "conv1d",
            "conv2d",
            "conv3d",
            "einsum",
            "linear",
            "matmul",
            "mm",
            "mv",
            "convolution",
        ]
    ),
    "attention": frozenset(
        [
            "scaled_dot_product_attention",
            "_scaled_dot_product_attention_math",
            "_scaled_dot_product_cudnn_attention",
            "_scaled_dot_product_efficient_attention",
            "_scaled_dot_product_flash_attention",
            "_scaled_dot_product_flash_attention_for_cpu",
        ]
    ),
    "gather": frozenset(["embedding", "embedding_bag", "gather", "index", "index_select", "take", "take_along_dim"]),
    "view": frozenset(
        [
            "alias",
            "chunk",
            "detach",
            "diagonal",
            "expand",
            "expand_as",
            "flatten",
            "movedim",
            "narrow",
            "permute",
            "reshape",
            "select",
            "slice",
            "split",
            "split_with_sizes",
            "squeeze",
            "swapaxes",
            "t",
            "transpose",
            "unbind",
            "unflatten",
            "unfold",
            "unsqueeze",
            "view",
            "view_as",
            "_unsafe_view",
            "mT",
            "getitem",
        ]
    ),
    "copy": frozenset(
        [
            "cat",
            "clone",
            "concat",
            "contiguous",
            "flip",
            "pad",
            "constant_pad_nd",
            "repeat",
            "repeat_interleave",
            "roll",
            "stack",
        ]
    ),
    "source": frozenset(
        [
            "arange",
            "empty",
            "eye",
            "full",
            "full_like",
            "lift_fresh_copy",
            "linspace",
            "new_full",
            "new_ones",
            "new_zeros",
            "ones",
            "ones_like",
            "scalar_tensor",
            "sym_size",
            "tril_indices",
            "triu_indices",
            "zeros",
            "zeros_like",
            "iota",
        ]
    ),
}
_NAMED: dict[str, Kind] = {name: kind for kind, names in _KINDS.items() for name in names}

WEIGHT = "weight"
"""The key of `meta` under which an input of a graph has the name of the parameter or buffer that it is."""
_APART = "apart"
"""The key of `meta` of a node that takes what the graph writes to."""
FUSABLE: frozenset[Kind] = frozenset(
    {"pointwise", "reduction", "normalisation", "product", "attention", "gather", "view", "copy", "source"}
)


def name(node: Node) -> str:
    """Return the operator's name without namespace and overload.

    `linear` of aten.linear.default.
    """
    if node.target is operator.getitem:
        return "getitem"
    if isinstance(node.target, torch._ops.OpOverload):
        return str(node.target._schema.name).rpartition("::")[2]
    return str(getattr(node.target, "__name__", node.target))


def kind(node: Node) -> Kind:
    """Return a node's kind; "other" where no kernel of ours could replace it.

    Such are arithmetic of sizes, random numbers, writes in place and what takes their targets, other libraries'
    operators.
    """
    if node.op != "call_function" or not isinstance(node.meta.get("val"), torch.Tensor | tuple | list):
        return "other"
    target = node.target
    if target is operator.getitem:
        return "view"
    if not isinstance(target, torch._ops.OpOverload) or target.namespace not in ("aten", "prims"):
        return "other"
    if target._schema.is_mutable or _APART in node.meta:
        return "other"
    found = _NAMED.get(name(node), "other")
    drops = name(node) == "dropout" and node.args[2] is not False
    noise = found == "attention" and arguments(node).get("dropout_p") not in (None, 0.0)
    return "other" if drops or noise else found


def arguments(node: Node) -> dict[str, Any]:
    """Return the arguments of a call by their names, with their defaults; nothing for what is no operator."""
    if not isinstance(node.target, torch._ops.OpOverload):
        return {}
    found: dict[str, Any] = {}
    for position, argument in enumerate(node.target._schema.arguments):
        if position < len(node.args):
            found[argument.name] = node.args[position]
        elif argument.name in node.kwargs:
            found[argument.name] = node.kwargs[argument.name]
        elif argument.has_default_value():
            found[argument.name] = argument.default_value
    return found


def weight(node: Node) -> str | None:
    """Return the name of the parameter or buffer that an input of a graph is, None for anything else."""
    found = node.meta.get(WEIGHT) if node.op == "placeholder" else None
    return None if found is None else str(found)


def mutated(graph: Graph) -> set[Node]:
    """Return the inputs that a graph writes to."""
    return {
        found
        for node in graph.nodes
        if node.op == "call_function" and isinstance(node.target, torch._ops.OpOverload)
        for argument in node.target._schema.arguments
        if argument.alias_info is not None and argument.alias_info.is_write
        if isinstance(found := arguments(node).get(argument.name), Node) and found.op == "placeholder"
    }


def set_apart(graph: Graph) -> None:
    """Mark what takes the inputs that a graph writes to, views of them included: no kernel may replace that."""
    touched = mutated(graph)
    for node in graph.nodes:
        if any(source in touched for source in node.all_input_nodes):
            node.meta[_APART] = True
            if _NAMED.get(name(node)) == "view":
                touched.add(node)


def tensor(node: Node) -> torch.Tensor | None:
    """Return the node's value as a tensor without data; None where it is none."""
    value = node.meta.get("val")
    return value if isinstance(value, torch.Tensor) else None


def operands(node: Node) -> list[torch.Tensor]:
    """Return the tensors among a call's positional arguments.

    The same one twice where it is given twice.
    """
    values = [tensor(item) for item in node.args if isinstance(item, Node)]
    return [value for value in values if value is not None]


def flops(node: Node) -> int:
    """Count the operations that no kernel can avoid which computes all of its result.

    Of a product or an attention, a multiply-add counting two; 0 for any other node. Of a causal attention's scores half
    are needed.
    """
    shapes = [list(value.shape) for value in operands(node)]
    called, value = name(node), node.meta.get("val")
    if kind(node) == "attention":
        query, key, mixed = shapes[:3]
        factor = 1 if arguments(node).get("is_causal") else 2
        return factor * math.prod(query[:-1]) * key[-2] * (query[-1] + mixed[-1])
    if kind(node) != "product" or not isinstance(value, torch.Tensor):
        return 0
    summed: list[int] = []
    if called in ("linear", "mm", "bmm", "mv", "matmul"):
        summed = [shapes[0][-1]]
    elif called in ("addmm", "baddbmm", "addmv"):
        summed = [shapes[1][-1]]
    elif called.startswith("conv"):
        summed = [*shapes[1][1:]]
    return 2 * math.prod(value.shape) * math.prod(summed) if summed else 0
