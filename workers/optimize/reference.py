"""Write a region of a graph as the reference of an op: readable PyTorch, the same result.

Pure functions of nodes. Names depend on the computation and not on its place, so that the same region of two layers
gives the same text.
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch.fx import Node

from warpsmith.kernels_db.spec.names import Names, identifier
from warpsmith.workers.optimize.capturing import size_of
from warpsmith.workers.optimize.operators import name, tensor
from warpsmith.workers.optimize.regions import Region

_INFIX = {"add": "+", "sub": "-", "mul": "*", "div": "/"}
_TORCH = frozenset(
    [
        "abs",
        "baddbmm",
        "bmm",
        "cat",
        "cos",
        "exp",
        "flatten",
        "gather",
        "index_select",
        "log",
        "matmul",
        "maximum",
        "mean",
        "minimum",
        "mm",
        "neg",
        "permute",
        "pow",
        "relu",
        "rsqrt",
        "sigmoid",
        "sin",
        "sqrt",
        "square",
        "stack",
        "sum",
        "tanh",
        "transpose",
        "tril",
        "triu",
        "unbind",
        "unsqueeze",
        "where",
    ]
)
"""Operators that are functions of `torch` with the same arguments."""
_FUNCTIONAL = frozenset(["gelu", "linear", "rms_norm", "silu"])
"""The same of torch.nn.functional."""


class Unspeakable(ValueError):  # noqa: N818 - named for what was found
    """A region that no reference can be written for; the message says why."""


class Sizes:
    """Symbolic sizes in terms of known values: shapes of a region's inputs, or an op's axes."""

    def __init__(self, known: Mapping[str, str]) -> None:
        """`known`: text by symbolic size, itself as text."""
        self._known = known

    def text(self, size: int | torch.SymInt) -> str:
        """Write the Python source of a size.

        In parentheses where it is more than a name or a number, because it appears among other operators. Raises
        Unspeakable where it follows from nothing that is known.
        """
        text = self.plain(size)
        return text if text in self._known.values() or text.isdigit() else f"({text})"

    def plain(self, size: int | torch.SymInt) -> str:
        """Return `text` without parentheses around all of it."""
        size, said = size_of(size), str(size)
        if isinstance(size, int):
            return said
        if said in self._known:
            return self._known[said]
        names = {str(symbol) for symbol in size.node.expr.free_symbols}
        if unknown := sorted(names - self._known.keys()):
            raise Unspeakable(f"a size of {said} does not follow from the region's inputs ({', '.join(unknown)})")
        return re.sub(r"\b[a-z]+\d+\b", lambda found: self._known.get(found[0], found[0]), said)


def input_names(region: Region) -> dict[Node, str]:
    """Name each input: a parameter's or buffer's own name, `x` and so on for activations."""
    names = Names()
    for taken in ("torch", "run", "float"):
        names.new(taken)
    return {
        node: names.new(identifier(str(node.target).rpartition(".")[2], "weight") if node.op == "get_attr" else "x")
        for node in region.inputs
    }


def write(region: Region) -> str:
    """Write the source of a module with `run(*inputs)`, which returns the region's outputs.

    Raises Unspeakable.
    """
    called = input_names(region)
    shapes: dict[str, str] = {}
    for node, text in called.items():
        value = tensor(node)
        assert value is not None
        for position, size in enumerate(map(size_of, value.shape)):
            if not isinstance(size, int):
                shapes.setdefault(str(size), f"{text}.shape[{position}]")
    writer = _Writer(called, Sizes(shapes))
    lines = [f"    {line}" for node in region.nodes for line in writer.line(node)]
    outputs = ", ".join(writer.names[node] for node in region.outputs)
    return (
        "\n".join(["import torch", "", "", f"def run({', '.join(called.values())}):", *lines, f"    return {outputs}"])
        + "\n"
    )


class _Writer:
    def __init__(self, called: dict[Node, str], sizes: Sizes) -> None:
        self.names = dict(called)
        self._sizes = sizes
        self._first = next(iter(called.values()))
        self._new = Names()
        for taken in ("torch", "run", "float", *called.values()):
            self._new.new(taken)

    def line(self, node: Node) -> list[str]:
        """Write the statement that computes a node; none for a size."""
        if isinstance(node.meta.get("val"), torch.SymInt):
            return []
        source = self._call(node)
        self.names[node] = self._new.new(identifier(name(node), "part"))
        return [f"{self.names[node]} = {source}"]

    def _call(self, node: Node) -> str:
        given = [self._value(value) for value in node.args]
        named = {key: self._value(value) for key, value in node.kwargs.items() if key not in ("layout", "pin_memory")}
        called = name(node)
        if node.target is operator.getitem:
            return f"{given[0]}[{given[1]}]"
        if called in _INFIX and not named and len(given) == 2:
            return f"{given[0]} {_INFIX[called]} {given[1]}"
        written = _WRITTEN.get(called)
        if written is not None and (source := written(given, named)) is not None:
            return source
        arguments = ", ".join([*given, *(f"{key}={value}" for key, value in named.items())])
        if called in _FUNCTIONAL:
            return f"torch.nn.functional.{called}({arguments})"
        return f"torch.{called}({arguments})" if called in _TORCH else f"torch.ops.aten.{called}({arguments})"

    def _value(self, value: Any) -> str:
        if isinstance(value, Node):
            size = value.meta.get("val")
            return self._sizes.text(size) if isinstance(size, int | torch.SymInt) else self.names[value]
        if isinstance(value, tuple | list):
            return f"[{', '.join(map(self._value, value))}]"
        if isinstance(value, torch.device):
            return f"{self._first}.device"
        if isinstance(value, float) and not math.isfinite(value):
            return f'float("{value}")'
        if value is None or isinstance(value, bool | int | float | str | torch.dtype | torch.memory_format):
            return str(value) if isinstance(value, torch.dtype | torch.memory_format) else repr(value)
        raise Unspeakable(f"an argument of type {type(value).__name__}")


Written = Callable[[list[str], dict[str, str]], str | None]


def _reshape(given: list[str], named: dict[str, str]) -> str | None:
    return None if named else f"torch.reshape({', '.join(given)})"


def _softmax(given: list[str], named: dict[str, str]) -> str | None:
    plain = not named and (len(given) == 2 or given[2] == "None")
    return f"torch.softmax({given[0]}, {given[1]})" if plain else None


def _embedding(given: list[str], named: dict[str, str]) -> str | None:
    return None if named else f"torch.nn.functional.embedding({given[1]}, {given[0]})"


def _layer_norm(given: list[str], named: dict[str, str]) -> str | None:
    return None if named else f"torch.nn.functional.layer_norm({', '.join(given[:5])})"


def _attention(given: list[str], named: dict[str, str]) -> str:
    """Without dropout, which a region never has."""
    parts = given[:3]
    if len(given) > 3 and given[3] != "None":
        parts.append(f"attn_mask={given[3]}")
    if len(given) > 5 and given[5] != "False":
        parts.append(f"is_causal={given[5]}")
    parts += [f"{key}={value}" for key, value in named.items() if key != "dropout_p"]
    return f"torch.nn.functional.scaled_dot_product_attention({', '.join(parts)})"


_WRITTEN: dict[str, Written] = {
    "view": _reshape,
    "reshape": _reshape,
    "_unsafe_view": _reshape,
    "softmax": _softmax,
    "embedding": _embedding,
    "layer_norm": _layer_norm,
    "scaled_dot_product_attention": _attention,
}
