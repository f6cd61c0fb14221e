"""Conditions on indices that no value can change: which are taken out, which stay, and that results are the same."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import fx

from warpsmith.workers.optimize.compiled import bounds, inductor
from warpsmith.workers.optimize.compiled.handle import Optimized

pytestmark = pytest.mark.filterwarnings("ignore:.torch.jit.script_method. is deprecated:DeprecationWarning")
"""Inductor imports a module of its own that warns."""

Model = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
EXPERTS = 16


def chosen(scores: torch.Tensor) -> torch.Tensor:
    return scores.topk(4, dim=-1).indices


def masked(x: torch.Tensor, condition: torch.Tensor) -> torch.Tensor:
    """A selection between two computations."""
    return torch.where(condition.unsqueeze(-1), torch.zeros_like(x), x.sin()) * 2


def sorted_experts(scores: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    """As the experts of transformers 5.17: rows of experts that are not here are masked, in place."""
    expert, order = torch.sort(chosen(scores).reshape(-1))
    elsewhere = (expert >= EXPERTS).unsqueeze(-1)
    expert.clamp_(max=EXPERTS - 1)
    rows = x[order // 4]
    rows.masked_fill_(elsewhere, 0.0)
    return rows.sin().masked_fill(elsewhere, 0.0) * 2


def by_permutation(scores: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    expert = chosen(scores).reshape(-1)
    return masked(x.repeat_interleave(4, 0), expert[torch.argsort(expert)] > EXPERTS - 1)


def as_int32(scores: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    return masked(x, scores.max(dim=1).indices.int() >= EXPERTS)


def always(scores: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    inside = scores.min(dim=-1).indices <= EXPERTS - 1
    return torch.where(inside[:, None].expand(x.shape), x.cos(), x.sin()) * 2


def signed(scores: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    return masked(x, scores.sort(dim=-1, stable=True)[1][:, 0] < 0)


def last_expert(scores: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    return masked(x, chosen(scores)[:, 0] >= EXPERTS - 1)


def over_rows(scores: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    """Indices along the rows, of which there are fewer."""
    return masked(x, scores.topk(2, dim=0).indices[0, : x.shape[0]] >= 2)


def of_values(scores: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    return masked(x, scores.topk(4).values[:, 0] >= EXPERTS)


def moved_on(scores: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    return masked(x, chosen(scores)[:, 0] + 1 >= EXPERTS)


def passed_in(scores: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    return masked(x, scores[:, 0].long() >= EXPERTS)


def no_expert(scores: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    """Equality is not the same over a range because it is at both ends."""
    return masked(x, chosen(scores)[:, 0] == 3)


def broadcast(scores: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    """What is selected has fewer elements than the result."""
    return torch.where((chosen(scores)[:, :1] >= EXPERTS), x, x[0].sin()) * 2


def leaving(scores: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    """A result that would be memory of another result."""
    return torch.where((chosen(scores)[:, :1] >= EXPERTS), x.sin(), x)


def given() -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    return torch.randn(3, EXPERTS, generator=generator), torch.randn(3, 8, generator=generator)


def graph_of(model: Model) -> fx.GraphModule:
    torch._dynamo.reset()
    seen: list[fx.GraphModule] = []

    def backend(graph: fx.GraphModule, inputs: list[torch.Tensor]) -> fx.GraphModule:
        seen.append(inductor.operators_of(graph, inputs))
        return graph

    torch.compile(model, backend=backend, dynamic=False)(*given())
    return seen[0]


def selections(graph: fx.GraphModule) -> int:
    return sum(str(node.target).startswith("aten.where") for node in graph.graph.nodes)


@pytest.mark.parametrize("model", [sorted_experts, by_permutation, as_int32, always, signed])
def test_a_condition_that_no_index_changes_is_taken_out_with_what_made_it(model: Model) -> None:
    graph = graph_of(model)
    assert selections(graph) == 0
    called = {str(node.target) for node in graph.graph.nodes}
    assert called.isdisjoint({f"aten.{name}.Scalar" for name in ("ge", "gt", "le", "lt")})
    torch.testing.assert_close(graph(*given())[0], model(*given()))


@pytest.mark.parametrize(
    "model", [last_expert, over_rows, of_values, moved_on, passed_in, no_expert, broadcast, leaving]
)
def test_a_condition_that_values_may_change_stays(model: Model) -> None:
    graph = graph_of(model)
    assert selections(graph) == 1
    torch.testing.assert_close(graph(*given())[0], model(*given()))


def test_a_value_that_an_input_is_given_is_read_before_another_is_written() -> None:
    def run(scores: torch.Tensor, x: torch.Tensor, state: torch.Tensor) -> torch.Tensor:
        before = torch.where(chosen(scores)[:, :1] >= EXPERTS, x.sin(), x)
        x.add_(1)
        state.copy_(before)
        return x.sum()

    found, wanted = ((*given(), torch.zeros(3, 8)) for _ in range(2))
    torch._dynamo.reset()
    with torch.no_grad():
        Optimized(run, None, None, lambda _: [], "right")(*found)
        run(*wanted)
    for one, other in zip(found, wanted, strict=True):
        torch.testing.assert_close(one, other)


def test_a_number_on_another_device_is_not_taken_for_the_result() -> None:
    graph = fx.Graph()
    first, second = graph.placeholder("first"), graph.placeholder("second")
    first.meta["val"], second.meta["val"] = torch.empty((), device="cpu"), torch.empty((), device="meta")
    assert bounds._alike(first, first)
    assert not bounds._alike(first, second)


def test_an_axis_whose_size_varies_bounds_no_index() -> None:
    def run(scores: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        return masked(x, scores.topk(2).indices[:, 0] >= EXPERTS)

    scores, x = given()
    torch._dynamo.mark_dynamic(scores, 1)
    torch._dynamo.reset()
    seen: list[fx.GraphModule] = []

    def backend(graph: fx.GraphModule, inputs: list[torch.Tensor]) -> fx.GraphModule:
        seen.append(inductor.operators_of(graph, inputs))
        return graph

    torch.compile(run, backend=backend)(scores, x)
    assert selections(seen[0]) == 1
