"""What a layer around an op has to know of its reference: the numbers in it, and whether it works row by row."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

from warpsmith.kernels_db.job.python_parsing import parse_module
from warpsmith.kernels_db.spec.op import Input, Op

EPSILON = ("eps", "variance_epsilon", "epsilon", "layer_norm_eps")
"""Names under which modules keep the number that they add to a variance."""

SMALL = 1e-2
"""A constant below this that a reference adds to something is an epsilon."""


class _Parameter(NamedTuple):
    """A number that a function of PyTorch takes: its position, name, default, and the hosts' names of it."""

    position: int
    keyword: str
    default: Any
    attributes: tuple[str, ...]


_FUNCTIONS: dict[str, tuple[_Parameter, ...]] = {
    "rms_norm": (_Parameter(3, "eps", None, EPSILON),),
    "layer_norm": (_Parameter(4, "eps", 1e-5, EPSILON),),
    "group_norm": (_Parameter(1, "num_groups", None, ("num_groups",)), _Parameter(4, "eps", 1e-5, EPSILON)),
    "softmax": (_Parameter(1, "dim", None, ("dim",)),),
    "log_softmax": (_Parameter(1, "dim", None, ("dim",)),),
    "leaky_relu": (_Parameter(1, "negative_slope", 0.01, ("negative_slope",)),),
    "elu": (_Parameter(1, "alpha", 1.0, ("alpha",)),),
    "celu": (_Parameter(1, "alpha", 1.0, ("alpha",)),),
    "softplus": (_Parameter(1, "beta", 1.0, ("beta",)), _Parameter(2, "threshold", 20.0, ("threshold",))),
    "hardtanh": (_Parameter(1, "min_val", -1.0, ("min_val",)), _Parameter(2, "max_val", 1.0, ("max_val",))),
    "gelu": (_Parameter(1, "approximate", "none", ("approximate",)),),
}
"""Functions whose numbers a module keeps as attributes, as those of `torch.nn` do."""

_OPTIONAL = ("dim", "approximate")
"""Attributes that other modules than `torch.nn`'s own do without: where a host has none, its class decides it."""

_BY_ELEMENT = frozenset(
    {"abs", "add", "clamp", "div", "erf", "exp", "log", "log1p", "maximum", "minimum", "mul", "neg", "pow", "rsqrt"}
    | {"celu", "elu", "gelu", "hardsigmoid", "hardswish", "hardtanh", "leaky_relu", "mish", "relu", "relu6", "selu"}
    | {"sigmoid", "silu", "softplus", "sqrt", "square", "sub", "tanh", "where", "float", "to", "type_as"}
)
_OF_A_ROW = frozenset(
    {"rms_norm", "layer_norm", "softmax", "log_softmax", "mean", "sum", "var", "amax", "amin", "chunk"}
)
"""Functions that look at one row alone where they are told the last axis."""


@dataclass(frozen=True)
class HostNumber:
    """A number of the op that its host module keeps, too: under one of `names`; `optional` where it may have none."""

    names: tuple[str, ...]
    value: float | int | str | bool | None
    optional: bool = False


def epsilons(op: Op) -> list[float]:
    """Return the numbers that the reference gives to `rms_norm` as its epsilon."""
    found: list[float] = []
    for node in ast.walk(parse_module(op.reference)):
        if isinstance(node, ast.Call) and ast.unparse(node.func).rpartition(".")[2] == "rms_norm":
            given = [*node.args[3:4], *(each.value for each in node.keywords if each.arg == "eps")]
            numbers = [each.value for each in given if isinstance(each, ast.Constant)]
            found += [number for number in numbers if isinstance(number, float)]
    return found


def host_numbers(op: Op) -> list[HostNumber] | None:
    """Return the numbers in the reference that a host module may have otherwise, each once.

    None where one of them is no constant and no input: then nothing says whether a host computes the same.
    """
    tree = parse_module(op.reference)
    constants, inputs = _constants(tree), {item.name for item in op.inputs}
    found: dict[HostNumber, None] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
            for side in (node.left, node.right):
                value = _value(side, constants)
                if isinstance(value, float) and 0.0 < value < SMALL:
                    found[HostNumber(EPSILON, value)] = None
        if not isinstance(node, ast.Call):
            continue
        for parameter in _FUNCTIONS.get(_name(node), ()):
            given = _given(node, parameter)
            if given is None:
                value = parameter.default
            elif isinstance(given, ast.Name) and given.id in inputs:
                continue  # an input of the op: the layer reads it from the host
            elif (value := _value(given, constants)) is _UNKNOWN:
                return None
            found[HostNumber(parameter.attributes, value, parameter.keyword in _OPTIONAL)] = None
    return list(found)


def is_activation(item: Input) -> bool:
    """Check whether an input is a tensor that a layer's call brings, as opposed to a weight or a number."""
    return item.shape is not None and item.role == "input"


def flattens(op: Op) -> bool:
    """Check whether a layer may make one axis of all leading ones: each activation and result is rows of its own."""
    shapes = [tuple(item.shape or ()) for item in op.inputs if is_activation(item)]
    shapes += [tuple(output.shape) for output in op.outputs]
    firsts = {shape[0] for shape in shapes if len(shape) > 1}
    held = [item.shape or () for item in op.inputs if not is_activation(item)] + [item.shape for item in op.state]
    return (
        all(len(shape) > 1 for shape in shapes)
        and len(firsts) == 1
        and not any(firsts & set(shape) for shape in held)
        and _row_by_row(op)
    )


def _row_by_row(op: Op) -> bool:
    """Check whether every call in the reference is by element, or told to look at the last axis alone.

    Loops, indices and products of matrices may look at other rows.
    """
    tree = parse_module(op.reference)
    if any(isinstance(node, ast.For | ast.While | ast.MatMult) for node in ast.walk(tree)):
        return False
    if any(isinstance(node, ast.Subscript) and not _keeps_leading(node) for node in ast.walk(tree)):
        return False
    constants = _constants(tree)
    weights = {item.name for item in op.inputs if not is_activation(item)}
    return all(_keeps_rows(node, constants, weights) for node in ast.walk(tree) if isinstance(node, ast.Call))


def _keeps_rows(call: ast.Call, constants: dict[str, Any], weights: set[str]) -> bool:
    name = _name(call)
    if name in _BY_ELEMENT:
        return True
    if name == "linear":
        return len(call.args) > 1 and isinstance(call.args[1], ast.Name) and call.args[1].id in weights
    if name not in _OF_A_ROW:
        return False
    if name in ("rms_norm", "layer_norm"):
        return True  # over the axes of the weight, which is one row's
    positions = {"chunk": 2}.get(name, 1)
    method = isinstance(call.func, ast.Attribute) and not _is_module(call.func.value)
    given = [each.value for each in call.keywords if each.arg == "dim"] or call.args[positions - method :][:1]
    return [_value(each, constants) for each in given] == [-1]


def _is_module(node: ast.expr) -> bool:
    """Check whether what a function is taken from is a module of PyTorch, and no tensor."""
    return ast.unparse(node) in ("torch", "torch.nn.functional", "nn.functional", "F", "functional")


def _keeps_leading(node: ast.Subscript) -> bool:
    """Check whether something is taken out of a shape (`x.shape[-1]`) or of each row (`x[..., :n]`)."""
    if isinstance(node.value, ast.Attribute) and node.value.attr == "shape":
        return True
    parts = node.slice.elts if isinstance(node.slice, ast.Tuple) else []
    return len(parts) == 2 and isinstance(parts[0], ast.Constant) and parts[0].value is ...


_UNKNOWN: Any = object()


def _constants(tree: ast.Module) -> dict[str, Any]:
    """Return the names that are set once, to a constant."""
    found: dict[str, list[ast.expr]] = {}
    for name, value in _assigned(tree):
        found.setdefault(name, []).append(value)
    return {
        name: constant
        for name, values in found.items()
        if len(values) == 1 and (constant := _value(values[0], {})) is not _UNKNOWN
    }


def _assigned(tree: ast.Module) -> Iterator[tuple[str, ast.expr]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign):
            yield from ((target.id, node.value) for target in node.targets if isinstance(target, ast.Name))
        elif isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name):
            yield node.target.id, node.value
            yield node.target.id, node.value  # twice set: no constant


def _value(node: ast.expr, constants: dict[str, Any]) -> Any:
    """Return the constant that an expression is; _UNKNOWN where it is none."""
    if isinstance(node, ast.Constant) and isinstance(node.value, float | int | str | None):
        return node.value
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        value = _value(node.operand, constants)
        return -value if isinstance(value, float | int) else _UNKNOWN
    return constants.get(node.id, _UNKNOWN) if isinstance(node, ast.Name) else _UNKNOWN


def _name(call: ast.Call) -> str:
    return ast.unparse(call.func).rpartition(".")[2]


def _given(call: ast.Call, parameter: _Parameter) -> ast.expr | None:
    """Return the argument for a parameter; None where the call leaves it out. A method has one position less."""
    named = [each.value for each in call.keywords if each.arg == parameter.keyword]
    method = isinstance(call.func, ast.Attribute) and not _is_module(call.func.value)
    return next(iter([*named, *call.args[parameter.position - method :][:1]]), None)
