"""What a layer around an op has to know of its reference: the epsilon in it, and whether it works row by row."""

from __future__ import annotations

import ast

from warpsmith.kernels_db.spec.op import Input, Op

ROW_BY_ROW = ("add_rms_norm", "gelu_tanh", "rms_norm", "silu_and_mul", "softmax")
"""Ops, by name, whose rows along the first axis are independent: a layer may make one axis of all leading ones."""


def epsilons(op: Op) -> list[float]:
    """Return the numbers that the reference gives to `rms_norm` as its epsilon."""
    found: list[float] = []
    for node in ast.walk(ast.parse(op.reference)):
        if isinstance(node, ast.Call) and ast.unparse(node.func).rpartition(".")[2] == "rms_norm":
            given = [*node.args[3:4], *(each.value for each in node.keywords if each.arg == "eps")]
            numbers = [each.value for each in given if isinstance(each, ast.Constant)]
            found += [number for number in numbers if isinstance(number, float)]
    return found


def is_activation(item: Input) -> bool:
    """Check whether an input is a tensor that a layer's call brings, as opposed to a weight or a number."""
    return item.shape is not None and item.role == "input"


def flattens(op: Op) -> bool:
    """Check whether a layer may make one axis of all leading ones: each activation and result is rows of its own."""
    shapes = [tuple(item.shape or ()) for item in op.inputs if is_activation(item)]
    shapes += [tuple(output.shape) for output in op.outputs]
    firsts = {shape[0] for shape in shapes if len(shape) == 2}
    return op.name in ROW_BY_ROW and all(len(shape) == 2 for shape in shapes) and len(firsts) == 1
