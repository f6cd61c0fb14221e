"""The kinds of operators in a model's graph, as far as fusing them is concerned.

Pure functions of nodes.
"""

from __future__ import annotations

import operator
from typing import Literal

import torch
from torch.fx import Node

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
            "clone",
            "contiguous",
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
        ]
    ),
    "attention": frozenset({"scaled_dot_product_attention"}),
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
        ["cat", "concat", "flip", "pad", "constant_pad_nd", "repeat", "repeat_interleave", "roll", "stack"]
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
        ]
    ),
}
_NAMED: dict[str, Kind] = {name: kind for kind, names in _KINDS.items() for name in names}

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

    Such are arithmetic of sizes, random numbers, writes in place, another library's operators.
    """
    if node.op != "call_function" or not isinstance(node.meta.get("val"), torch.Tensor | tuple | list):
        return "other"
    target = node.target
    if target is operator.getitem:
        return "view"
    if not isinstance(target, torch._ops.OpOverload) or target.namespace != "aten" or target._schema.is_mutable:
        return "other"
    found = _NAMED.get(name(node), "other")
    drops = name(node) == "dropout" and node.args[2] is not False
    noise = found == "attention" and len(node.args) > 4 and node.args[4] != 0.0
    return "other" if drops or noise else found


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


def flops(node: Node) -> list[tuple[int, list[int | torch.SymInt]]]:
    """Count the operations that no kernel can avoid which computes all of its result.

    Of a product or an attention, a multiply-add counting two, as products of sizes with a factor; nothing for any other
    node. Of a causal attention's scores half are needed.
    """
    shapes = [list(value.shape) for value in operands(node)]
    called, result = name(node), tensor(node)
    if result is None or kind(node) not in ("product", "attention"):
        return []
    out = list(result.shape)
    if kind(node) == "attention":
        query, key, mixed = shapes[:3]
        causal = bool(node.args[5] if len(node.args) > 5 else node.kwargs.get("is_causal", False))
        scores, factor = [*query[:-1], key[-2]], 1 if causal else 2
        return [(factor, [*scores, query[-1]]), (factor, [*scores, mixed[-1]])]
    summed: list[int | torch.SymInt] | None = None
    if called in ("linear", "mm", "bmm", "mv", "matmul"):
        summed = [shapes[0][-1]]
    elif called in ("addmm", "baddbmm", "addmv"):
        summed = [shapes[1][-1]]
    elif called.startswith("conv"):
        summed = list(shapes[1][1:])
    return [] if summed is None else [(2, [*out, *summed])]


def at_sample(size: int | torch.SymInt) -> int:
    """Return a size as it is for the sample batch."""
    return size if isinstance(size, int) else int(size.node.hint)
