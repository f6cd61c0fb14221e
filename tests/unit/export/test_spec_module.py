"""How an exported package binds a call's axes: as its spec says, also where an axis is in no input's shape."""

from __future__ import annotations

import ast
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from tests.exporting import shipped
from warpsmith.kernels_db.export.spec_module import _bind_axes, render_spec_module
from warpsmith.kernels_db.library import entries
from warpsmith.kernels_db.spec.op import Target, parse_op
from warpsmith.kernels_db.spec.resolve import arguments, resolve_workload


def bind(derived: str, *shape: int) -> Any:
    """The axes of a call of an op whose input has the derived axis alone."""
    op = parse_op(
        {
            "schema_version": 1,
            "name": "halves",
            "axes": {
                "tokens": {"kind": "var"},
                "hidden": {"kind": "var"},
                "heads": {"kind": "const", "value": 3},
                "packed": {"kind": "expr", "expr": derived},
            },
            "inputs": [{"name": "x", "shape": ["tokens", "packed"], "dtype": "float32"}],
            "outputs": [{"name": "y", "shape": ["tokens", "hidden"], "dtype": "float32"}],
            "reference": "def run(x):\n    return x\n",
            "workloads": [{"id": "one", "role": "bench", "axes": {"tokens": 2, "hidden": 8}}],
        }
    )
    space: dict[str, Any] = {}
    exec("\n".join(["def bind_axes(x):", *_bind_axes(op)]), space)
    return space["bind_axes"](SimpleNamespace(shape=shape, dim=lambda: len(shape)))


@pytest.mark.parametrize(
    ("derived", "size", "hidden"), [("2 * hidden", 128, 64), ("heads * hidden + 1", 16, 5), ("hidden - 1", 1, 2)]
)
def test_an_axis_is_found_from_one_that_depends_on_it(derived: str, size: int, hidden: int) -> None:
    assert bind(derived, 4, size) == {"tokens": 4, "hidden": hidden, "heads": 3, "packed": size}


@pytest.mark.parametrize(
    ("derived", "size", "told"),
    [
        ("2 * hidden", 127, "x.shape[1] is 127, expected 2 * hidden for some hidden"),
        ("2 * hidden", 0, "x.shape[1] is 0, expected 2 * hidden for some hidden"),
        ("hidden * hidden", 16, "x.shape[1] is 16, expected"),
        ("hidden // hidden", 1, "x.shape[1] is 1, expected hidden // hidden for some hidden"),
    ],
)
def test_a_size_that_no_axis_gives_is_told(derived: str, size: int, told: str) -> None:
    found = bind(derived, 4, size)
    assert isinstance(found, str)
    assert told in found


@pytest.mark.parametrize(
    ("sizes", "told"),
    [
        ([(2, 2), (8, 8)], {"tokens": 4, "experts": 64, "top": 6}),
        ([(8, 8), (8, 8)], "the axis top stands in no input's shape"),  # which may be by chance
        ([(2, 2), (8, 4)], "the axis top stands in no input's shape"),
    ],
)
def test_an_integer_that_is_an_axis_in_every_workload_tells_it(sizes: list[tuple[int, int]], told: Any) -> None:
    """The k of a top-k."""
    workloads = [
        {"id": f"w{n}", "role": "bench", "axes": {"tokens": 3, "experts": 8, "top": top}, "inputs": {"k": {"value": k}}}
        for n, (top, k) in enumerate(sizes)
    ]
    op = parse_op(
        {
            "schema_version": 1,
            "name": "gate",
            "axes": {"tokens": {"kind": "var"}, "experts": {"kind": "var"}, "top": {"kind": "var"}},
            "inputs": [
                {"name": "logits", "shape": ["tokens", "experts"], "dtype": "float32"},
                {"name": "k", "dtype": "int64", "value": 1},
            ],
            "outputs": [{"name": "weights", "shape": ["tokens", "top"], "dtype": "float32"}],
            "reference": "import torch\n\ndef run(logits, k):\n    return torch.topk(logits, k, dim=-1).values\n",
            "workloads": workloads,
        }
    )
    space: dict[str, Any] = {}
    exec("\n".join(["def bind_axes(logits, k):", *_bind_axes(op)]), space)
    found = space["bind_axes"](SimpleNamespace(shape=(4, 64), dim=lambda: 2), 6)
    assert found == told or (isinstance(told, str) and told in found)


def test_the_package_of_every_kernel_that_ships_knows_the_axes_of_its_workloads() -> None:
    """One that does not would give every call to PyTorch."""
    for kernel in entries():
        op = kernel.op
        names = ", ".join(item.name for item in arguments(op))
        space: dict[str, Any] = {}
        exec("\n".join([f"def bind_axes({names}):", *_bind_axes(op)]), space)
        for workload in (resolve_workload(op, each) for each in op.workloads_for(Target.parse(kernel.target))):
            given = [
                each.get("value") if each.get("shape") is None else torch.empty(each["shape"], device="meta")
                for each in workload["inputs"]
            ]
            assert space["bind_axes"](*given) == workload["axes"], (op.name, workload["id"])


def test_the_package_of_every_kernel_that_ships_checks_every_address() -> None:
    """64 bytes is what prompts promise and what torch's allocator gives on a CPU; on a GPU it gives 512."""
    for entry in entries():
        module = ast.parse(render_spec_module([shipped(entry)], "one"))
        found = next(
            ast.literal_eval(node.value)
            for node in module.body
            if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "ALIGNMENTS"
        )
        tensors = [position for position, item in enumerate(arguments(entry.op)) if item.shape is not None]
        assert found == [(position, 64) for position in tensors], entry.op.name


def test_an_axis_that_nothing_depends_on_stays_unknown() -> None:
    assert "stands in no input's shape" in bind("heads * 2", 4, 6)
