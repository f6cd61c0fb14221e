"""Write a region of a graph as the reference of an op: PyTorch with named intermediate values, the same result.

Pure functions of nodes. Names depend on the computation and not on its place, so that the same region of two layers
gives the same text. Traced and decomposed as Inductor does it, a reference is to give the region's own operators again.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from typing import Any

import torch
from torch.fx import Node

from warpsmith.kernels_db.spec.names import Names, identifier
from warpsmith.workers.optimize.forms import Form
from warpsmith.workers.optimize.operators import arguments, kind, name, tensor, weight
from warpsmith.workers.optimize.regions import Region

_INFIX = {"aten.add.Tensor": "+", "aten.sub.Tensor": "-", "aten.mul.Tensor": "*", "aten.div.Tensor": "/"}
_TORCH = frozenset(
    [
        "aten.abs.default",
        "aten.bmm.default",
        "aten.cos.default",
        "aten.erf.default",
        "aten.exp.default",
        "aten.log.default",
        "aten.maximum.default",
        "aten.mean.dim",
        "aten.minimum.default",
        "aten.mm.default",
        "aten.neg.default",
        "aten.permute.default",
        "aten.pow.Tensor_Scalar",
        "aten.relu.default",
        "aten.rsqrt.default",
        "aten.sigmoid.default",
        "aten.sin.default",
        "aten.sqrt.default",
        "aten.tanh.default",
        "aten.unsqueeze.default",
    ]
)
"""Operators that are functions of `torch` with the same arguments."""
_VIEWS = ("view", "reshape", "_unsafe_view")
_METHODS = {**dict.fromkeys(_VIEWS, "view"), "expand": "expand", "convert_element_type": "to"}
"""Operators that are written as methods of a tensor."""
_TURNED = ("permute", "transpose")
"""Operators whose axes are said from the front."""
_ELSEWHERE = ("layout", "pin_memory")
"""Arguments that say nothing of a result."""
_SHORT = {"scaled_dot_product_attention": "attention", "_to_copy": "to"}


class Unspeakable(ValueError):  # noqa: N818 - named for what was found
    """A region that no reference can be written for; the message says why."""


def input_names(region: Region) -> dict[Node, str]:
    """Name each input: a parameter's or buffer's own name, `x` and so on for activations."""
    names = Names()
    for taken in ("torch", "run", "float", "lead"):
        names.new(taken)
    return {
        node: names.new("x" if (of := weight(node)) is None else identifier(of.rpartition(".")[2], "weight"))
        for node in region.inputs
    }


def write(region: Region, form: Form) -> str:
    """Write the source of a module with `run(*inputs)`, which returns the region's outputs.

    Raises Unspeakable.
    """
    called = input_names(region)
    writer = _Writer(region, called, form)
    lines = [f"    {line}" for node in region.nodes for line in writer.line(node)]
    if writer.leads and form.axis is not None:
        first = region.inputs[0]
        value = tensor(first)
        assert value is not None
        behind = value.dim() - form.leads(first)
        lines.insert(0, f"    lead = {called[first]}.shape" + (f"[:-{behind}]" if behind else ""))
    outputs = ", ".join(writer.names[node] for node in region.outputs)
    head = ["import torch", "", "", f"def run({', '.join(called.values())}):"]
    return "\n".join([*head, *lines, f"    return {outputs}"]) + "\n"


class _Writer:
    """Writes statements; `names` are of the nodes written so far, `leads` whether one needs the leading sizes."""

    def __init__(self, region: Region, called: dict[Node, str], form: Form) -> None:
        self.names = dict(called)
        self.leads = False
        self._region, self._form = region, form
        self._first = next(iter(called.values()))
        self._new = Names()
        for taken in ("torch", "run", "float", "lead", *called.values()):
            self._new.new(taken)
        self._whole = {} if form.literal else _linears(region)
        self._silent = {node for found in self._whole.values() for node in found[1]}

    def line(self, node: Node) -> list[str]:
        """Write the statement that computes a node; none for a part of a call that is written as a whole."""
        if node in self._silent:
            return []
        if not self._form.literal and kind(node) == "attention" and _is_plain(node):
            return []  # written where its first result is taken
        source = self._call(node)
        said = "linear" if node in self._whole else name(node)
        if node.target is operator.getitem and node.args[0] not in self.names:
            said = "attention"
        said = _SHORT.get(said, said)
        self.names[node] = self._new.new(identifier(said.strip("_"), "part"))
        return [f"{self.names[node]} = {source}"]

    def _call(self, node: Node) -> str:
        if node in self._whole:
            return f"torch.nn.functional.linear({', '.join(self.names[each] for each in self._whole[node][0])})"
        if node.target is operator.getitem:
            source = node.args[0]
            assert isinstance(source, Node)
            return f"{self.names[source]}[{node.args[1]}]" if source in self.names else self._attention(source)
        if (method := _METHODS.get(name(node))) is not None and len(node.args) == 2 and not node.kwargs:
            sizes = method != "to"
            return f"{self._value(node.args[0])}.{method}({self._sizes(node) if sizes else self._value(node.args[1])})"
        return self._plain(node)

    def _plain(self, node: Node) -> str:
        called, target = name(node), str(node.target)
        given = [self._argument(node, position, value) for position, value in enumerate(node.args)]
        named = {key: self._value(value) for key, value in node.kwargs.items() if key not in _ELSEWHERE}
        if target in _INFIX and not named and len(given) == 2 and isinstance(node.args[0], Node):
            return f"{given[0]} {_INFIX[target]} {given[1]}"
        everything = ", ".join([*given, *(f"{key}={value}" for key, value in named.items())])
        if target in _TORCH:
            return f"torch.{called}({everything})"
        return f"torch.ops.{target}({everything})"

    def _argument(self, node: Node, position: int, value: Any) -> str:
        """Write an argument; an axis is said from the end, for rows may be one axis or several."""
        if isinstance(node.target, torch._ops.OpOverload) and name(node) not in _TURNED and self._form.axis is not None:
            argument = node.target._schema.arguments[position]
            rank = _rank(node)
            if argument.name == "dim" and rank is not None:
                if isinstance(value, int):
                    return repr(value - rank if value >= 0 else value)
                if isinstance(value, Sequence):
                    return repr([each - rank if each >= 0 else each for each in value])
        return self._value(value)

    def _sizes(self, node: Node) -> str:
        """Write the sizes of a view, the leading ones as those of the first input."""
        value = tensor(node)
        assert value is not None
        shape = [int(size) for size in value.shape]
        form = self._form
        if form.axis is None or not shape:
            return ", ".join(map(str, shape)) or "()"
        if tuple(shape[: len(form.lead)]) == form.lead:
            self.leads = True
            return ", ".join(["*lead", *map(str, shape[len(form.lead) :])])
        if shape[0] % form.rows == 0 and name(node) != "expand":
            return ", ".join(["-1", *map(str, shape[1:])])
        return ", ".join(map(str, shape))

    def _attention(self, node: Node) -> str:
        given = arguments(node)
        parts = [self.names[given[key]] for key in ("query", "key", "value")]
        mask = given.get("attn_mask", given.get("attn_bias"))
        if isinstance(mask, Node):
            parts.append(f"attn_mask={self.names[mask]}")
        if given.get("is_causal"):
            parts.append("is_causal=True")
        if given.get("scale") is not None:
            parts.append(f"scale={given['scale']!r}")
        heads = [value.shape[1] for key in ("query", "key") if (value := tensor(given[key])) is not None]
        if len(set(heads)) > 1:
            parts.append("enable_gqa=True")
        return f"torch.nn.functional.scaled_dot_product_attention({', '.join(parts)})"

    def _value(self, value: Any) -> str:
        if isinstance(value, Node):
            if value not in self.names:
                raise Unspeakable(f"{value.name} is no tensor that the region has")
            return self.names[value]
        if isinstance(value, tuple | list):
            return f"[{', '.join(map(self._value, value))}]"
        if isinstance(value, torch.device):
            return f"{self._first}.device"
        if isinstance(value, float) and not math.isfinite(value):
            return f'float("{value}")'
        if value is None or isinstance(value, bool | int | float | str | torch.dtype | torch.memory_format):
            return str(value) if isinstance(value, torch.dtype | torch.memory_format) else repr(value)
        raise Unspeakable(f"an argument of type {type(value).__name__}")


def _rank(node: Node) -> int | None:
    """Return the number of axes from which an operator's `dim` counts, None where it takes no tensor."""
    value = next((value for each in node.all_input_nodes if (value := tensor(each)) is not None), None)
    if value is None:
        return None
    return value.dim() + (1 if name(node) in ("unsqueeze", "stack") else 0)


def _is_plain(node: Node) -> bool:
    """Return whether an attention can be written as PyTorch's own function: only its first result is taken."""
    first = all(user.target is operator.getitem and user.args[1] == 0 for user in node.users)
    return (
        first
        and {"query", "key", "value"} <= arguments(node).keys()
        and name(node) != "_scaled_dot_product_attention_math"
    )


def _linears(region: Region) -> dict[Node, tuple[list[Node], list[Node]]]:
    """Return what is a call of `linear`: by the node that is its result, its arguments and the other nodes of it."""
    found = {}
    own = set(region.nodes)
    for node in region.nodes:
        called = name(node)
        if called not in ("mm", "addmm") or node.kwargs:
            continue
        (*bias, given, turned) = (each for each in node.args if isinstance(each, Node))
        if name(turned) != "permute" or turned.args[1] != [1, 0] or turned not in own or len(turned.users) > 1:
            continue
        bias_value = tensor(bias[0]) if bias else None
        if len(bias) != (called == "addmm") or (bias_value is not None and bias_value.dim() != 1):
            continue
        matrix = turned.args[0]
        assert isinstance(matrix, Node)
        result, parts, x = node, [turned], given
        if given in own and name(given) in _VIEWS and len(node.users) == 1:
            user, before = next(iter(node.users)), given.all_input_nodes[0]
            value, flat = tensor(user), tensor(before)
            views = user in own and name(user) in _VIEWS and len(given.users) == 1
            if views and value is not None and flat is not None and value.shape[:-1] == flat.shape[:-1]:
                result, parts, x = user, [turned, given, node], before
        found[result] = ([x, matrix, *bias], parts)
    return found
