"""Places whose integers differ from those of the traced reference: sizes, where the reference has them there too."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import fx

from warpsmith.kernels_db.spec.op import Target, load_op, parse_op
from warpsmith.kernels_db.spec.resolve import reference_source
from warpsmith.workers.optimize.compiled import inductor, places
from warpsmith.workers.optimize.sought import Sought

pytestmark = pytest.mark.filterwarnings("ignore:.torch.jit.script_method. is deprecated:DeprecationWarning")
"""Inductor imports a module of its own that warns."""

Function = Callable[..., torch.Tensor]


def op(run: Function, shapes: dict[str, list[str]], *more: dict[str, int], **sizes: int) -> Sought:
    """An op whose axes all vary, with a workload of these sizes and one of each of `more`."""
    workloads = [{"id": f"of-{at}", "role": "bench", "axes": axes} for at, axes in enumerate([sizes, *more])]
    return Sought(
        parse_op(
            {
                "schema_version": 1,
                "name": "op",
                "description": "an op",
                "axes": {axis: {"kind": "var"} for axis in sizes},
                "inputs": [{"name": name, "shape": shape, "dtype": "float32"} for name, shape in shapes.items()],
                "outputs": [{"name": "y", "shape": next(iter(shapes.values())), "dtype": "float32"}],
                "reference": "def run(*given):\n    return given\n",
                "workloads": workloads,
            }
        ),
        run,
        Target.parse("cpu"),
    )


def found(wanted: Sought, run: Function, *given: torch.Tensor) -> int:
    """How many places an op has in a function's graph, with an addition behind it."""

    def model(*inputs: torch.Tensor) -> torch.Tensor:
        return run(*inputs) + 1

    looked_at = places.find(inductor.operators(model, given), [wanted])  # type: ignore[list-item]
    assert looked_at.misses == []
    return len(looked_at.regions)


def by_width(x: torch.Tensor) -> torch.Tensor:
    """What looks otherwise for a single column."""
    return x.sin() if x.shape[-1] == 1 else x.sin().cos()


def test_a_reference_that_looks_otherwise_for_one_element_is_found_both_ways() -> None:
    def wanted() -> Sought:
        return op(by_width, {"x": ["rows", "columns"]}, {"rows": 2, "columns": 1}, rows=2, columns=4)

    assert found(wanted(), by_width, torch.zeros(3, 5)) == 1
    assert found(wanted(), by_width, torch.zeros(3, 1)) == 1
    assert found(wanted(), lambda x: x.sin().exp(), torch.zeros(3, 5)) == 0, "so it looks for a single column alone"
    same = op(torch.sin, {"x": ["rows", "columns"]}, {"rows": 2, "columns": 1}, rows=2, columns=4)
    assert found(same, lambda x: x.sin().exp(), torch.zeros(3, 1)) == 1, "and not once for each way"


@pytest.mark.parametrize(
    ("tokens", "top"),
    [
        (1, 1),
        pytest.param(1, 4, marks=pytest.mark.nightly),
        pytest.param(5, 1, marks=pytest.mark.nightly),
        (5, 4),
    ],
)
def test_experts_are_found_for_one_token_and_for_one_expert_a_token(tokens: int, top: int) -> None:
    """Each looks otherwise."""
    experts = load_op(Path(__file__).parents[3] / "examples" / "moe_experts.yaml")
    namespace: dict[str, Any] = {}
    exec(reference_source(experts), namespace)

    def model(scores: torch.Tensor, x: torch.Tensor, gate_up: torch.Tensor, down: torch.Tensor) -> Any:
        weights, chosen = scores.softmax(-1).topk(top, -1)
        return namespace["run"](x.sin(), chosen, weights.to(x.dtype), gate_up, down).cos()

    given = [torch.empty(size, dtype=torch.bfloat16) for size in [(tokens, 256), (16, 128, 256), (16, 256, 64)]]
    graph = inductor.operators(model, [torch.zeros(tokens, 16), *given])
    wanted = Sought(experts, namespace["run"], Target.parse("cuda:sm_90"))
    wanted.devices = ("cpu",)
    assert len(places.find(graph, [wanted]).regions) == 1  # type: ignore[list-item]


def gated(x: torch.Tensor) -> torch.Tensor:
    gate, up = x.chunk(2, dim=-1)
    return torch.relu(gate) * up


def rotated(x: torch.Tensor) -> torch.Tensor:
    half = x.shape[-1] // 2
    return torch.cat((-x[..., half:], x[..., :half]), -1) * 2


def scored(chosen: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return torch.mm((chosen == torch.arange(weight.shape[0])).float(), weight) * 2


@pytest.mark.parametrize("width", [8, 6, pytest.param(32, marks=pytest.mark.nightly)])
def test_halves_are_halves_at_every_width(width: int) -> None:
    for run in (gated, rotated):
        wanted = op(run, {"x": ["rows", "width"]}, rows=5, width=8)
        assert found(wanted, run, torch.randn(3, width)) == 1
        assert found(wanted, run, torch.randn(1, 4, width)) == 1, "with two leading axes"


@pytest.mark.parametrize(
    "other",
    [
        lambda x: torch.relu(x.split(16, -1)[0]) * x.split(16, -1)[1],
        lambda x: torch.cat((-x[..., 12:], x[..., :12]), -1) * 2,
        lambda x: torch.cat((-x[..., :16], x[..., 16:]), -1) * 2,
        lambda x: torch.cat((-x[..., 16:], x[..., :16]), -1) * 3,
        lambda x: torch.cat((-x[..., 4:], x[..., :4]), -1) * 2,
    ],
    ids=["of three parts two", "less than half", "the other way round", "three times", "where it was traced"],
)
def test_what_is_no_half_is_no_place(other: Function) -> None:
    x = torch.randn(3, 48 if other(torch.zeros(1, 48)).shape[-1] == 16 else 32)
    for run in (gated, rotated):
        wanted = op(run, {"x": ["rows", "width"]}, rows=5, width=8)
        assert found(wanted, other, x) == 0


def test_a_range_is_as_long_as_the_axis_that_it_counts() -> None:
    wanted = op(
        scored, {"chosen": ["tokens", "one"], "weight": ["experts", "width"]}, tokens=5, one=1, experts=4, width=3
    )
    chosen, weight = torch.zeros(6, 1), torch.randn(8, 16)
    assert found(wanted, scored, chosen, weight) == 1

    def from_one(chosen: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        return torch.mm((chosen == torch.arange(1, 9)).float(), weight) * 2

    assert found(wanted, from_one, chosen, weight) == 0


def test_a_constant_of_the_reference_stays_one() -> None:
    """It is half of the width where the reference was traced, and nowhere else."""

    def first(x: torch.Tensor) -> torch.Tensor:
        return torch.relu(x[..., :4]) * 0.5

    wanted = op(first, {"x": ["rows", "width"]}, rows=5, width=8)
    assert found(wanted, first, torch.randn(3, 32)) == 1
    assert found(wanted, lambda x: torch.relu(x[..., :16]) * 0.5, torch.randn(3, 32)) == 0


def test_an_integer_that_only_this_call_has_is_no_size_of_the_rows() -> None:
    """Rows vary from call to call; the first call has six, as many as a constant of the model says.

    Three are half of six, as of seven, and as many as the pattern has.
    """

    def counted(x: torch.Tensor) -> torch.Tensor:
        return torch.relu(x) * x.shape[0]

    def model(x: torch.Tensor) -> torch.Tensor:
        return torch.relu(x) * 6 + 1

    def paired(x: torch.Tensor) -> torch.Tensor:
        return torch.relu(x) * (x.shape[0] // 2)

    def three_times(x: torch.Tensor) -> torch.Tensor:
        return torch.relu(x) * 3 + 1

    def halved(x: torch.Tensor) -> torch.Tensor:
        return rotated(x) + 1

    seen: list[fx.GraphModule] = []

    def backend(graph: fx.GraphModule, inputs: list[Any]) -> Any:
        seen.append(inductor.operators_of(graph, inputs))
        return graph

    torch._dynamo.reset()
    x = torch.randn(6, 16)
    torch._dynamo.mark_dynamic(x, 0)
    for run in (model, halved, three_times):
        torch.compile(run, backend=backend)(x)
    torch._dynamo.reset()
    few = torch.randn(3, 16)
    torch._dynamo.mark_dynamic(few, 0)
    torch.compile(three_times, backend=backend)(few)
    by_rows = op(counted, {"x": ["rows", "width"]}, rows=5, width=8)
    by_width = op(rotated, {"x": ["rows", "width"]}, rows=5, width=8)
    assert found(by_rows, counted, x) == 1, "where rows are six in each call"
    assert places.find(seen[0].graph, [by_rows]).regions == []  # type: ignore[list-item]
    assert len(places.find(seen[1].graph, [by_width]).regions) == 1  # type: ignore[list-item]
    by_pairs = op(paired, {"x": ["rows", "width"]}, rows=5, width=8)
    assert found(by_pairs, paired, x) == 1
    assert places.find(seen[2].graph, [by_pairs]).regions == []  # type: ignore[list-item]
    assert places.find(seen[3].graph, [by_rows]).regions == []  # type: ignore[list-item]
