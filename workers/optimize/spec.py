"""Write a region as the document of an op spec.

The leading sizes as an axis where they may vary, the real sizes as a workload, values drawn as they were found.
Functions of the region and of the values that one call had.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch.fx import Node

from warpsmith.kernels_db.job.dtypes import DTYPE_BYTES
from warpsmith.kernels_db.spec.names import identifier
from warpsmith.workers.optimize import labels, operators
from warpsmith.workers.optimize.forms import Form
from warpsmith.workers.optimize.needed import needed, whole
from warpsmith.workers.optimize.operators import kind, name, tensor, weight
from warpsmith.workers.optimize.reference import Unspeakable, input_names, write
from warpsmith.workers.optimize.regions import Region

_FAMILIES = {"attention": "attention", "product": "gemm", "gather": "embedding"}
_SHORT = {"scaled_dot_product_attention": "attention"}
_LONGEST_NAME = 48
SAMPLE = "sample"
"""The workload with the sizes of the model's own batch."""
_FEW = 3
"""Rows of a test workload beside a sample of one."""


@dataclass(frozen=True)
class Written:
    """A spec that is not checked yet. `sizes`: of the var axes in the sample batch."""

    document: dict[str, Any]
    sizes: dict[str, int]


def identity(region: Region) -> str:
    """Return a text that is equal for two regions which compute the same on the same sizes.

    Names of weights and how values are drawn do not count.
    """
    source = write(region, Form(None, (), literal=True))
    called = input_names(region)
    inputs = [(called[node], _facts(node), weight(node) is not None) for node in region.inputs]
    return repr((inputs, [_facts(node) for node in region.outputs], source))


def _facts(node: Node) -> tuple[Any, ...]:
    value = _of(node)
    steps = tuple(int(step) for size, step in zip(value.shape, value.stride(), strict=True) if size != 1)
    return tuple(map(int, value.shape)), steps, str(value.dtype), value.device.type


def describe(region: Region, form: Form, values: Mapping[Node, torch.Tensor]) -> Written:
    """Write the spec of a region in a form. `values`: those of its inputs in one call.

    Raises Unspeakable.
    """
    source = write(region, form)
    called = input_names(region)
    sizes = {} if form.axis is None else {form.axis: form.rows}
    inputs = [_input(node, called[node], region, form, values[node]) for node in region.inputs]
    outputs = [
        {"name": "y" if number == 1 else f"y_{number}", "shape": form.shape(node), "dtype": _dtype(node)}
        for number, node in enumerate(region.outputs, 1)
    ]
    kinds = {kind(node) for node in region.nodes}
    document: dict[str, Any] = {
        "schema_version": 1,
        "name": op_name(region),
        "description": f"{region.title} of {region.modules}",
        "axes": {axis: {"kind": "var"} for axis in sizes},
        "inputs": inputs,
        "outputs": outputs,
        "reference": source,
        "workloads": [{"id": SAMPLE, "role": "bench", "axes": sizes}, *_others(sizes)],
    }
    family = next((said for each, said in _FAMILIES.items() if each in kinds), None)
    if any(labels.is_norm(node) for node in region.nodes):
        family = family or "normalization"
    if family is not None:
        document["family"] = family
    if {"product", "attention"} & kinds:
        document["library_calls"] = True
    if limits := _limits(region, form):
        document["limits"] = limits
    return Written(document, sizes)


def op_name(region: Region) -> str:
    """Join the operators in a row: "linear_gelu"."""
    said = [_SHORT.get(label, label) + ("s" if count > 1 else "") for label, count in labels.counted(region.nodes)]
    return identifier("_".join(said)[:_LONGEST_NAME], "region")


def _of(node: Node) -> torch.Tensor:
    value = tensor(node)
    assert value is not None
    return value


def _dtype(node: Node) -> str:
    found = str(_of(node).dtype).removeprefix("torch.")
    if found not in DTYPE_BYTES:
        raise Unspeakable(f"the dtype {found}, which an op spec does not have")
    return found


def _input(node: Node, called: str, region: Region, form: Form, value: torch.Tensor) -> dict[str, Any]:
    item: dict[str, Any] = {"name": called, "shape": form.shape(node), "dtype": _dtype(node)}
    if weight(node) is not None:
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
            return int(_of(user.args[0]).shape[0])  # type: ignore[arg-type]
        if name(user) in ("index_select", "gather") and user.args[2] is node:
            return int(_of(user.args[0]).shape[user.args[1]])  # type: ignore[arg-type, index]
        if name(user) == "index" and isinstance(user.args[1], list | tuple) and node in user.args[1]:
            return int(_of(user.args[0]).shape[user.args[1].index(node)])  # type: ignore[arg-type]
    return None


def _others(sizes: Mapping[str, int]) -> list[dict[str, Any]]:
    """Return test workloads beside the sample's sizes, so that a kernel is verified on a range."""
    if not sizes:
        return []
    if set(sizes.values()) == {1}:
        return [{"id": "few", "role": "test", "axes": dict.fromkeys(sizes, _FEW)}]
    odd = {axis: min(size, max(1, 2 * size // 3) | 1) for axis, size in sizes.items()}
    one = dict.fromkeys(sizes, 1)
    listed = [("odd", odd), ("one", one)]
    return [{"id": label, "role": "test", "axes": found} for label, found in listed if found != sizes]


def _limits(region: Region, form: Form) -> dict[str, str]:
    """Return the operations of products whose results are needed as a whole.

    And bytes where not all of an input is needed.
    """
    read = needed(region)
    limits = {}
    if flops := sum(operators.flops(node) for node in region.nodes if read(node) == whole(node)):
        limits["flops"] = _per_row(flops, form)
    if any(read(node) != whole(node) for node in region.inputs):
        limits["bytes"] = _bytes(region, form)
    return limits


def _per_row(amount: int, form: Form) -> str:
    """Write an amount that grows with the axis."""
    if form.axis is None:
        return str(amount)
    return (
        f"{amount // form.rows} * {form.axis}" if amount % form.rows == 0 else f"{amount} * {form.axis} // {form.rows}"
    )


def _bytes(region: Region, form: Form) -> str:
    """Compute the least traffic of a region.

    The needed parts of the inputs, and the results. Of m uniform draws from n rows at least half of min(m, n) are
    different ones on average.
    """

    def size(node: Node) -> str:
        return " * ".join(map(str, [_of(node).element_size(), *(form.shape(node) or [1])]))

    parts = []
    for amount in [amount for node in region.inputs for amount in needed(region)(node)]:
        sizes = list(map(size, amount))
        parts.append(sizes[0] if len(sizes) == 1 else f"min({sizes[0]}, {sizes[1]}) // 2")
    return " + ".join([*parts, *map(size, region.outputs)])
