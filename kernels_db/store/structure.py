"""What an op is made of: kinds of computation and of access, read from its reference. Pure.

It says which verified kernels are worth reading for an op, whatever their dtypes, ranks and arguments
(`similarity` says which can be run for it).
"""

from __future__ import annotations

import ast

from warpsmith.kernels_db.job.python_parsing import parse_module
from warpsmith.kernels_db.job.reference_operations import operations
from warpsmith.kernels_db.spec.schema import Op

_NAMES = """
product: matmul mm bmm addmm baddbmm linear einsum dot mv outer tensordot scaled_dot_product_attention
convolution: conv1d conv2d conv3d conv_transpose1d conv_transpose2d conv_transpose3d
attention: scaled_dot_product_attention
pooling: max_pool1d max_pool2d max_pool3d avg_pool1d avg_pool2d avg_pool3d adaptive_avg_pool2d
reduction: sum mean amax amin max min prod var std var_mean logsumexp argmax argmin softmax log_softmax
reduction: layer_norm rms_norm group_norm batch_norm instance_norm normalize cross_entropy nll_loss mse_loss
reduction: scaled_dot_product_attention l1_loss smooth_l1_loss huber_loss kl_div triplet_margin_loss cosine_similarity
reduction: pairwise_distance norm vector_norm binary_cross_entropy binary_cross_entropy_with_logits
normalisation: layer_norm rms_norm group_norm batch_norm instance_norm normalize rsqrt var var_mean
softmax: softmax log_softmax logsumexp cross_entropy scaled_dot_product_attention
scan: cumsum cumprod cummax cummin logcumsumexp associative_scan
order: sort argsort topk kthvalue median unique searchsorted
indexing: gather scatter scatter_add index_select index_add index_put take take_along_dim embedding
transcendental: exp exp2 expm1 log log2 log1p tanh sigmoid gelu silu softplus erf sin cos mish selu elu pow
transcendental: softmax log_softmax scaled_dot_product_attention
pointwise: masked_fill add sub mul div relu clamp where minimum maximum sqrt rsqrt abs neg sigmoid tanh gelu silu exp
"""
_KINDS: dict[str, set[str]] = {}
for _line in _NAMES.split("\n"):
    if _line:
        _KINDS.setdefault(_line.partition(":")[0], set()).update(_line.partition(":")[2].split())
"""Kinds of computation, by the names of a reference's calls and operators."""

_PLAIN = """
view reshape flatten unflatten squeeze unsqueeze transpose permute t mT contiguous expand expand_as repeat
repeat_interleave cat stack chunk split unbind narrow clone to type float double half bfloat16 int long bool copy fill
zero zeros ones empty full zeros_like ones_like empty_like full_like arange tensor size numel dim shape stride item
range len tuple list zip enumerate pow square reciprocal neg sign round floor ceil eq ne lt le gt ge logical_and
logical_or logical_not any all isnan isfinite triu tril diagonal roll flip pad finfo iinfo
"""
"""Names that compute no product, softmax or order."""

_LIGHT = frozenset({"pointwise", "transcendental", "in place", "last axis"})
"""Features that many ops share; they weigh half."""

LEAST = 0.5
"""Share of the weight of either op's features that both must have."""


def structure(op: Op) -> frozenset[str]:
    """Return the features of an op: its kinds of computation, and how it goes over its tensors.

    "last axis": a reduction along the last dimension. "in place": an input is updated. Empty where its reference names
    no operation that is known.
    """
    names = operations(op.reference)
    if not names:
        return frozenset()
    found = {kind for kind, members in _KINDS.items() if names & members}
    if "attention" not in found and _weighs_by_softmax(op.reference):
        found.add("attention")
    if found and any(item.mutated for item in op.inputs):
        found.add("in place")
    if "reduction" in found and _over_last_axis(op.reference):
        found.add("last axis")
    return frozenset(found)


def is_known(op: Op) -> bool:
    """Check whether every name that an op's reference calls is known, so that what was not found is not there."""
    names = operations(op.reference)
    return bool(names) and names <= set(_PLAIN.split()).union(*_KINDS.values())


def likeness(one: frozenset[str], other: frozenset[str]) -> float:
    """Return the share of the weight of all features that both have; 0 where there are none."""
    every = _weight(one | other)
    return _weight(one & other) / every if every else 0.0


def _weight(features: frozenset[str]) -> float:
    return sum(1.0 if feature in _LIGHT else 2.0 for feature in features)


def _over_last_axis(reference: str) -> bool:
    """Check whether -1 or `x.shape[-1]` is an argument of some call."""
    for node in ast.walk(parse_module(reference)):
        if isinstance(node, ast.Call):
            given = [*node.args, *(keyword.value for keyword in node.keywords)]
            if any(_is_last(inner) for value in given for inner in ast.walk(value)):
                return True
    return False


def _weighs_by_softmax(reference: str) -> bool:
    """Check whether a product takes a softmax of another product: an attention that is written out.

    Assignments are followed in the order of the text, by their names alone.
    """
    products: set[str] = set()
    weights: set[str] = set()
    for node in ast.walk(parse_module(reference)):
        if not isinstance(node, ast.FunctionDef):
            continue
        for statement in node.body:
            for operand in _arguments_of(statement, "product"):
                if _mentions(operand, weights) or _holds_softmax_of_product(operand, products):
                    return True
            targets = {name.id for name in ast.walk(statement) if isinstance(name, ast.Name) and _is_stored(name)}
            of_product = _mentions(statement, products) or bool(_arguments_of(statement, "product"))
            if _mentions(statement, weights) or (of_product and bool(_arguments_of(statement, "softmax"))):
                weights |= targets
            elif of_product:
                products |= targets
    return False


def _holds_softmax_of_product(node: ast.AST, products: set[str]) -> bool:
    return any(_mentions(one, products) or _arguments_of(one, "product") for one in _arguments_of(node, "softmax"))


def _arguments_of(statement: ast.AST, kind: str) -> list[ast.AST]:
    """Return the operands of a statement's calls and operators of a kind."""
    found: list[ast.AST] = []
    for node in ast.walk(statement):
        if isinstance(node, ast.Call):
            name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            if name in _KINDS[kind]:
                found += [*node.args, *([node.func.value] if isinstance(node.func, ast.Attribute) else [])]
        elif kind == "product" and isinstance(node, ast.BinOp) and isinstance(node.op, ast.MatMult):
            found += [node.left, node.right]
    return found


def _mentions(node: ast.AST, names: set[str]) -> bool:
    return any(isinstance(one, ast.Name) and one.id in names and not _is_stored(one) for one in ast.walk(node))


def _is_stored(name: ast.Name) -> bool:
    return isinstance(name.ctx, ast.Store)


def _is_last(node: ast.AST) -> bool:
    return isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub) and ast.unparse(node.operand) == "1"
