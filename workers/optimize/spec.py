"""Write a region as the document of an op spec.

Axes where the model's sizes vary, its real sizes as a workload, values drawn as they were found. Functions of the graph
and of the values that one call had.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import torch
from torch.fx import Graph, Node

from warpsmith.kernels_db.spec import expr
from warpsmith.kernels_db.spec.basic_types import DTYPE_BYTES
from warpsmith.kernels_db.spec.names import Names, identifier
from warpsmith.workers.optimize import operators
from warpsmith.workers.optimize.capturing import size_of
from warpsmith.workers.optimize.needed import needed, whole
from warpsmith.workers.optimize.operators import at_sample, kind, name, tensor
from warpsmith.workers.optimize.reference import Sizes, Unspeakable, input_names, write
from warpsmith.workers.optimize.regions import Region

POSITIONS = ("batch", "length")
"""Names for the sizes of a model's input, by position; further ones are `size`."""
_FAMILIES = {"attention": "attention", "product": "gemm", "normalisation": "normalization", "gather": "embedding"}
_SHORT = {"scaled_dot_product_attention": "attention", "_softmax": "softmax", "_to_copy": "to"}
_LONGEST_NAME = 48
SAMPLE = "sample"
"""The workload with the sizes of the model's own batch."""


@dataclass(frozen=True)
class Written:
    """A spec that is not checked yet. `sizes`: of the var axes in the sample batch."""

    document: dict[str, Any]
    sizes: dict[str, int]

    @property
    def identity(self) -> str:
        """Return a text that is equal for two regions which one kernel could serve.

        All but how values are drawn, names and workloads.
        """
        inputs = [{key: value for key, value in item.items() if key != "dist"} for item in self.document["inputs"]]
        parts = [self.document[key] for key in ("axes", "outputs", "reference")]
        return repr([inputs, *parts])


def describe(region: Region, graph: Graph, values: Mapping[Node, torch.Tensor]) -> Written:
    """Write the spec of a region. `values`: those of its inputs in one call.

    Raises Unspeakable.
    """
    source = write(region)
    called = input_names(region)
    axes, sizes = _axes(region, graph)
    known = Sizes({size: axis for axis, (size, _) in axes.items()})
    inputs = [_input(node, called[node], region, known, values[node]) for node in region.inputs]
    outputs = [
        {"name": "y" if number == 1 else f"y_{number}", "shape": _shape(node, known), "dtype": _dtype(node)}
        for number, node in enumerate(region.outputs, 1)
    ]
    kinds = {kind(node) for node in region.nodes}
    document: dict[str, Any] = {
        "schema_version": 1,
        "name": op_name(region),
        "description": f"{region.title} of {region.modules}",
        "axes": {axis: declared for axis, (_, declared) in axes.items()},
        "inputs": inputs,
        "outputs": outputs,
        "reference": source,
        "workloads": [{"id": SAMPLE, "role": "bench", "axes": sizes}, *_smaller(sizes)],
    }
    family = next((said for each, said in _FAMILIES.items() if each in kinds), None)
    if family is not None:
        document["family"] = family
    if {"product", "attention"} & kinds:
        document["library_calls"] = True
    if limits := _limits(region, known):
        document["limits"] = limits
    return Written(document, sizes)


def op_name(region: Region) -> str:
    """Join the operators in a row: "linear_gelu"."""
    parts = [_SHORT.get(name(node), name(node)) for node in region.nodes if kind(node) not in ("view", "source")]
    return identifier("_".join(parts)[:_LONGEST_NAME], "region")


def _axes(region: Region, graph: Graph) -> tuple[dict[str, tuple[str, dict[str, Any]]], dict[str, int]]:
    """Return the sizes that vary.

    By axis the symbolic size and what the spec declares; and the sizes of the var axes.
    """
    symbols = _symbols(graph)
    shapes = [size for node in region.inputs for size in map(size_of, _of(node).shape) if not isinstance(size, int)]
    plain = {str(size) for size in shapes if str(size) in symbols}
    names = Names()
    axes: dict[str, tuple[str, dict[str, Any]]] = {}
    sizes: dict[str, int] = {}
    given: dict[str, str] = {}
    for size in sorted(shapes, key=lambda size: str(size) not in plain):  # those that others are made of come first
        said = str(size)
        if said in given:
            continue
        free = {str(symbol) for symbol in size.node.expr.free_symbols}
        derived = said not in plain and free <= plain and _expression(size, given)
        given[said] = names.new(symbols.get(said, "rows"))
        if derived:
            axes[given[said]] = (said, {"kind": "expr", "expr": derived})
        else:
            axes[given[said]] = (said, {"kind": "var"})
            sizes[given[said]] = at_sample(size)
    return axes, sizes


def _symbols(graph: Graph) -> dict[str, str]:
    """Name each size of the model's inputs that varies."""
    found: dict[str, str] = {}
    names = Names()
    for node in graph.nodes:
        value = node.meta.get("val")
        if node.op == "placeholder" and isinstance(value, torch.Tensor):
            for position, size in enumerate(map(size_of, value.shape)):
                if not isinstance(size, int) and str(size) not in found:
                    found[str(size)] = names.new(POSITIONS[position] if position < len(POSITIONS) else "size")
    return found


def _expression(size: torch.SymInt, given: Mapping[str, str]) -> str | None:
    """Write a size as an expression of the spec.

    None where the spec's language has none for it.
    """
    try:
        text = Sizes(given).plain(size)
        expr.parse(text, "integer")
    except (Unspeakable, expr.ExprError):
        return None
    return text


def _of(node: Node) -> torch.Tensor:
    value = tensor(node)
    assert value is not None
    return value


def _shape(node: Node, known: Sizes) -> list[str | int]:
    """Write the shape as axes and integers. Raises Unspeakable for a size that is neither."""
    shape: list[str | int] = []
    for size in map(size_of, _of(node).shape):
        text = known.text(size)
        if not isinstance(size, int) and not text.isidentifier():
            raise Unspeakable(f"a result's size, {text}, is no size of its inputs")
        shape.append(size if isinstance(size, int) else text)
    return shape


def _dtype(node: Node) -> str:
    found = str(_of(node).dtype).removeprefix("torch.")
    if found not in DTYPE_BYTES:
        raise Unspeakable(f"the dtype {found}, which an op spec does not have")
    return found


def _input(node: Node, called: str, region: Region, known: Sizes, value: torch.Tensor) -> dict[str, Any]:
    if not _of(node).is_contiguous():
        raise Unspeakable(f"the input {called} is strided {tuple(value.stride())}")
    item: dict[str, Any] = {"name": called, "shape": _shape(node, known), "dtype": _dtype(node)}
    if node.op == "get_attr":
        item["role"] = "weight"
    return item | {"dist": _dist(node, called, region, value)}


def _dist(node: Node, called: str, region: Region, value: torch.Tensor) -> dict[str, Any]:
    """Describe values like those that were found.

    Raises Unspeakable for values that cannot be drawn.
    """
    if value.dtype is torch.bool:
        return {"kind": "bernoulli", "p": _rounded(float(value.float().mean()))}
    if not value.is_floating_point():
        if rows := _rows_indexed(node, region):
            return {"kind": "randint", "low": 0, "high": rows}
        return {"kind": "randint", "low": int(value.min()), "high": int(value.max()) + 1}
    wide = value.double()
    if not bool(wide.isfinite().all()):
        raise Unspeakable(f"the input {called} has values that are not finite")
    low, high = _rounded(float(wide.min())), _rounded(float(wide.max()))
    if low == high:
        return {"kind": "constant", "value": low}
    if float(wide.min()) >= 0:
        return {"kind": "uniform", "low": low, "high": high}
    return {"kind": "normal", "mean": _rounded(float(wide.mean())), "std": _rounded(float(wide.std()))}


def _rounded(value: float) -> float:
    return float(f"{value:.2g}")


def _rows_indexed(node: Node, region: Region) -> int | None:
    """Count the rows of the tensor that this input indexes."""
    for user in node.users:
        if user not in region.nodes:
            continue
        if name(user) == "embedding" and user.args[1] is node:
            return at_sample(_of(user.args[0]).shape[0])  # type: ignore[arg-type]
        if name(user) in ("index_select", "gather") and user.args[2] is node:
            return at_sample(_of(user.args[0]).shape[user.args[1]])  # type: ignore[arg-type, index]
    return None


def _smaller(sizes: Mapping[str, int]) -> list[dict[str, Any]]:
    """Return test workloads below the sample's sizes, so that a kernel is verified on a range."""
    if not sizes:
        return []
    odd = {axis: min(size, max(1, 2 * size // 3) | 1) for axis, size in sizes.items()}
    one = dict.fromkeys(sizes, 1)
    listed = [("odd", odd), ("one", one)]
    return [{"id": label, "role": "test", "axes": found} for label, found in listed if found != sizes]


def _limits(region: Region, known: Sizes) -> dict[str, str]:
    """Return the operations of products whose results are needed as a whole.

    And bytes where not all of an input is needed.
    """
    read = needed(region)
    products = [
        (factor, shape) for node in region.nodes if read(node) == whole(node) for factor, shape in operators.flops(node)
    ]
    limits = {}
    with suppress(Unspeakable):
        terms = [" * ".join([str(factor), *map(known.text, shape)]) for factor, shape in products]
        if terms:
            limits["flops"] = " + ".join(terms)
    if any(read(node) != whole(node) for node in region.inputs):
        limits["bytes"] = _bytes(region, known)
    return limits


def _bytes(region: Region, known: Sizes) -> str:
    """Compute the least traffic of a region.

    The needed parts of the inputs, as far as there are words for their sizes, and the results.

    Of m uniform draws from n rows at least half of min(m, n) are different ones on average.
    """

    def size(node: Node) -> str:
        value = _of(node)
        return f"{value.element_size()} * " + " * ".join(known.text(each) for each in value.shape or (1,))

    read = needed(region)
    parts = []
    for amount in [amount for node in region.inputs for amount in read(node)]:
        with suppress(Unspeakable):
            sizes = list(map(size, amount))
            parts.append(sizes[0] if len(sizes) == 1 else f"min({sizes[0]}, {sizes[1]}) // 2")
    return " + ".join([*parts, *map(size, region.outputs)])
