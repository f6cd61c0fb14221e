"""Products that add themselves to a residual: which do, that results stay right, and that nothing else changes."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import fx

from warpsmith.workers.optimize.compiled import inductor, products, rewriting

pytestmark = pytest.mark.filterwarnings("ignore:.torch.jit.script_method. is deprecated:DeprecationWarning")
Model = Callable[..., object]
ROWS, WIDTH = 6, 16


def drawn(*shape: int, dtype: torch.dtype = torch.bfloat16) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape))).to(dtype)


def rewritten(model: Model, *inputs: torch.Tensor) -> tuple[fx.GraphModule, int]:
    """A model's graph of operators after the pass, and how many products add themselves."""
    graph = inductor.operators(model, inputs)
    products.add_in_place(graph)
    graph.lint()
    adding = [node for node in graph.nodes if products.ADD in node.args]
    return fx.GraphModule(torch.nn.Module(), graph), len(adding)


@pytest.fixture(autouse=True)
def worth(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(products, "WORTH", 1)


def layers(x: torch.Tensor, first: torch.Tensor, second: torch.Tensor) -> torch.Tensor:
    total = x * 2
    total = total + torch.nn.functional.linear(total.relu(), first)
    return torch.nn.functional.linear(total.sin(), second) + total


def test_each_residual_of_a_chain_is_added_by_its_product() -> None:
    x, first, second = drawn(2, ROWS, WIDTH), drawn(WIDTH, WIDTH), drawn(WIDTH, WIDTH)
    module, adding = rewritten(layers, x, first, second)
    assert adding == 2
    assert not [node for node in module.graph.nodes if node.target is torch.ops.aten.mm.default]
    before = x.clone()
    (found,) = module(x, first, second)
    exact = layers(x.double(), first.double(), second.double())
    assert found.shape == exact.shape
    assert found.dtype is torch.bfloat16
    assert torch.equal(x, before)
    own = layers(x, first, second)
    assert (found.double() - exact).norm() <= 1.1 * (own.double() - exact).norm()


def test_a_sum_that_is_read_later_or_is_the_callers_stays() -> None:
    linear = torch.nn.functional.linear
    weight = drawn(WIDTH, WIDTH)
    assert rewritten(lambda x, w: x + linear(x, w), drawn(ROWS, WIDTH), weight)[1] == 0  # the caller's own

    def read_later(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        total = x * 2
        return (total + linear(x, w)).relu() * total

    def returned(x: torch.Tensor, w: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        total = x * 2
        return total + linear(x, w), total

    def view_read_later(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        total = x * 2
        turned = total.t()
        return (total + linear(x, w)).relu().t() * turned

    for model in (read_later, returned, view_read_later):
        assert rewritten(model, drawn(ROWS, WIDTH), weight)[1] == 0


def test_a_product_that_something_else_reads_stays() -> None:
    def model(x: torch.Tensor, w: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        product = torch.nn.functional.linear(x, w)
        return x * 2 + product, product.relu()

    assert rewritten(model, drawn(ROWS, WIDTH), drawn(WIDTH, WIDTH))[1] == 0


def test_other_arithmetic_stays() -> None:
    linear = torch.nn.functional.linear
    x, weight = drawn(ROWS, WIDTH), drawn(WIDTH, WIDTH)
    assert rewritten(lambda x, w: torch.add(x * 2, linear(x, w), alpha=2), x, weight)[1] == 0
    assert rewritten(lambda x, w: (x * 2).float() + linear(x, w), x, weight)[1] == 0
    assert rewritten(lambda x, w: x[:1] * 2 + linear(x, w), x, weight)[1] == 0
    assert rewritten(lambda x, w: linear(x, w) + 1, x, weight)[1] == 0
    assert rewritten(lambda x, w: x * 2 + linear(x, w), x.float(), weight.float())[1] == 0
    assert rewritten(lambda x, w: x * 2 + x @ w, x, weight)[1] == 0  # a weight that is not turned
    assert rewritten(lambda x, w: x * 2 + linear(x, w), x, weight)[1] == 1


def test_a_small_product_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(products, "WORTH", ROWS * WIDTH + 1)
    x, weight = drawn(ROWS, WIDTH), drawn(WIDTH, WIDTH)
    assert rewritten(lambda x, w: x * 2 + torch.nn.functional.linear(x, w), x, weight)[1] == 0


@pytest.mark.parametrize(
    ("patches", "names"),
    [
        ({}, ("sines", "sums", "attention")),
        ({"triton.cudagraphs": True}, ("sines", "sums", "attention")),
        ({"max_autotune": True}, ("sines", "attention")),
        ({"max_autotune_gemm": True}, ("sines", "attention")),
    ],
)
def test_products_are_inductors_where_it_measures_them(patches: dict[str, bool], names: tuple[str, ...]) -> None:
    assert rewriting._last(patches) == names
