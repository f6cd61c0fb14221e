"""Embedding bags that are concatenated: which go to one operator, which stay, and that the graph computes the same."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import fx
from torch.nn import functional as F  # noqa: N812 - as everywhere

pytest.importorskip("triton", reason="Triton is not installed")

from benchmarks import dlrm
from warpsmith.workers.optimize.compiled import bag_kernel, bags, choice, inductor
from warpsmith.workers.optimize.compiled.bags import BagRegion
from warpsmith.workers.optimize.compiled.places import put

pytestmark = pytest.mark.filterwarnings("ignore:.torch.jit.script_method. is deprecated:DeprecationWarning")
"""Inductor imports a module of its own that warns."""

Model = Callable[..., torch.Tensor]
ROWS, WIDTH, BATCH = 20, 8, 4


def rewritten(model: Model, *inputs: torch.Tensor, stays: list[str] | None = None) -> tuple[list[Any], list[str]]:
    """The plans that were found, and the operators of the rewritten graph, which computes what the model does.

    stays: is given why each bag is in none of them.
    """
    plans: list[Any] = []
    operators: list[str] = []

    def backend(graph: fx.GraphModule, given: list[Any]) -> fx.GraphModule:
        traced = inductor.operators_of(graph, given)
        regions, left = bags.find(traced.graph)
        if stays is not None:
            stays.extend(left.values())
        put(traced.graph, regions)
        traced.recompile()
        plans.extend(region.kernel.plan for region in regions if isinstance(region, BagRegion))
        operators.extend(str(node.target) for node in traced.graph.nodes if node.op == "call_function")
        return traced

    torch._dynamo.reset()
    with torch.no_grad():
        found = torch.compile(model, backend=backend)(*inputs)
        torch.testing.assert_close(found, model(*inputs), rtol=0, atol=0)
    return plans, operators


def modes(plan: bag_kernel.Plan) -> list[str]:
    return [part.mode for part in plan.parts]


def tables(count: int, **how: Any) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(ROWS, WIDTH, generator=generator).to(**how) for _ in range(count)]


def indices(*shape: int, **how: Any) -> torch.Tensor:
    return torch.randint(ROWS, shape, generator=torch.Generator().manual_seed(1)).to(**how)


OFFSETS = torch.tensor([0, 2, 2, 7])


def test_a_dlrm_has_one_operator_in_place_of_its_bags_and_their_concatenation() -> None:
    torch.manual_seed(0)
    sizes = dlrm.Sizes(tables=26, rows=30, bottom=(16, 8), top=(8, 1))
    model = dlrm.DLRM(sizes).eval()
    inputs = dlrm.inputs(model, 5, torch.device("cpu"), torch.Generator().manual_seed(0))
    (plan,), operators = rewritten(model, *inputs)
    assert modes(plan) == ["copy", *["sum"] * 26]
    assert not plan.stacked
    assert operators.count(str(bag_kernel.operator)) == 1
    assert not any("_embedding_bag" in each for each in operators)
    assert operators.count("aten.cat.default") == 1  # of the dense features with the products


def test_bags_of_any_mode_are_grouped_with_their_padding_weights_and_last_offsets() -> None:
    one, two, three = tables(3)
    last = torch.tensor([0, 2, 2, 7, 10])
    weights = torch.randn(10, generator=torch.Generator().manual_seed(2))

    def model(i: torch.Tensor, offsets: torch.Tensor, last: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        mean = F.embedding_bag(i, one, offsets, padding_idx=3)
        largest = F.embedding_bag(i, two, last, mode="max", include_last_offset=True)
        weighted = F.embedding_bag(i, three, offsets, mode="sum", per_sample_weights=w, padding_idx=-1)
        return torch.cat([mean, largest, weighted, F.embedding(i[:BATCH], one)], 1)

    (plan,), operators = rewritten(model, indices(10), OFFSETS, last, weights)
    assert modes(plan) == ["mean", "max", "sum", "row"]
    assert [part.padding for part in plan.parts] == [3, -1, ROWS - 1, -1]
    assert [part.last for part in plan.parts] == [False, True, False, False]
    assert [part.weights is None for part in plan.parts] == [True, True, False, True]
    assert operators.count(str(bag_kernel.operator)) == 1
    assert "aten.cat.default" not in operators


def test_indices_in_two_dimensions_need_no_offsets_and_columns_of_them_no_copies() -> None:
    one, two = tables(2)

    def model(i: torch.Tensor, offsets: torch.Tensor) -> torch.Tensor:
        single = F.embedding_bag(i[:, 0], one, offsets, mode="sum")
        return torch.stack([single, F.embedding_bag(i, two, mode="sum")], 1)

    (plan,), operators = rewritten(model, indices(BATCH, 3), torch.arange(BATCH))
    assert [(part.offsets is None, part.length) for part in plan.parts] == [(False, 1), (True, 3)]
    assert "aten.clone.default" not in operators
    assert "prims.iota.default" not in operators


def test_sizes_that_vary_may_be_those_of_the_batch() -> None:
    one, two = tables(2)

    def model(i: torch.Tensor, offsets: torch.Tensor, dense: torch.Tensor) -> torch.Tensor:
        found = [F.embedding_bag(i[:, 0], one, offsets), F.embedding_bag(i[:, 1], two, offsets)]
        return torch.cat([dense, *found], 1) * 2

    inputs = [indices(6, 2), torch.arange(6), torch.randn(6, 5)]
    for each in inputs:
        torch._dynamo.mark_dynamic(each, 0)
    (plan,), operators = rewritten(model, *inputs)
    assert modes(plan) == ["copy", "mean", "mean"]
    assert operators.count(str(bag_kernel.operator)) == 1


def by_stack(found: list[torch.Tensor]) -> torch.Tensor:
    return torch.stack(found)


def by_view(found: list[torch.Tensor]) -> torch.Tensor:
    return torch.cat([found[0].unsqueeze(1), found[1].view(BATCH, 2, WIDTH // 2).reshape(BATCH, 1, WIDTH)], 1)


@pytest.mark.parametrize(("put_together", "stacked"), [(by_stack, True), (by_view, False)])
def test_bags_may_be_stacked_and_viewed(put_together: Callable[[Any], torch.Tensor], stacked: bool) -> None:
    one, two = tables(2, dtype=torch.bfloat16)

    def model(i: torch.Tensor, offsets: torch.Tensor) -> torch.Tensor:
        return put_together([F.embedding_bag(i, each, offsets, mode="sum") for each in (one, two)])

    (plan,), operators = rewritten(model, indices(10, dtype=torch.int32), OFFSETS.int())
    assert plan.stacked is stacked
    assert "aten.cat.default" not in operators


def alone(i: torch.Tensor, offsets: torch.Tensor, dense: torch.Tensor) -> torch.Tensor:
    return torch.cat([F.embedding_bag(i, dense, offsets), dense[:BATCH]], 1)


def read_elsewhere(i: torch.Tensor, offsets: torch.Tensor, dense: torch.Tensor) -> torch.Tensor:
    found = F.embedding_bag(i, dense, offsets)
    return torch.cat([found, F.embedding_bag(i, dense + 1, offsets)], 1) + found.sum()


def element_by_element(i: torch.Tensor, offsets: torch.Tensor, dense: torch.Tensor) -> torch.Tensor:
    return torch.stack([F.embedding_bag(i, dense, offsets), F.embedding_bag(i, dense + 1, offsets)], -1)


def in_float64(i: torch.Tensor, offsets: torch.Tensor, dense: torch.Tensor) -> torch.Tensor:
    return torch.cat([F.embedding_bag(i, each.double(), offsets) for each in (dense, dense + 1)], 1)


def columns_of_a_table(i: torch.Tensor, offsets: torch.Tensor, dense: torch.Tensor) -> torch.Tensor:
    return torch.cat([F.embedding_bag(i, part, offsets) for part in dense.split(4, 1)], 1)


def sums_of_embeddings(i: torch.Tensor, offsets: torch.Tensor, dense: torch.Tensor) -> torch.Tensor:
    return torch.cat([F.embedding(i.view(5, 2), each).sum(1) for each in (dense, dense + 1)], 1)


def never_concatenated(i: torch.Tensor, offsets: torch.Tensor, dense: torch.Tensor) -> torch.Tensor:
    return F.embedding_bag(i, dense, offsets) + F.embedding_bag(i, dense + 1, offsets)


ELSEWHERE, ALONE = "its result is also read elsewhere", "no other bag is left to write in one launch with it"
NOT_ROWS = "what it is concatenated with lies otherwise than in rows, each for a bag, of known width"


@pytest.mark.parametrize(
    ("model", "why"),
    [
        (alone, [ALONE]),
        (read_elsewhere, [ELSEWHERE, ALONE]),
        (element_by_element, [NOT_ROWS] * 2),
        (in_float64, ["its result is float64, expected float32 or bfloat16 or float16"] * 2),
        (columns_of_a_table, ["its table is not contiguous, or its sizes vary"] * 2),
        (never_concatenated, ["its result is not concatenated with those of other bags"] * 2),
        (sums_of_embeddings, []),
    ],
)
def test_what_is_otherwise_stays_with_inductor_and_each_bag_says_why(model: Model, why: list[str]) -> None:
    stays: list[str] = []
    plans, operators = rewritten(model, indices(10), OFFSETS, torch.randn(ROWS, WIDTH), stays=stays)
    assert plans == []
    assert str(bag_kernel.operator) not in operators
    assert stays == why


@pytest.mark.parametrize("place", [0, 1, 2])
def test_a_bag_of_another_dtype_of_indices_than_the_most_is_copied_into_its_place(place: int) -> None:
    by_place = tables(3)

    def model(i: torch.Tensor, offsets: torch.Tensor) -> torch.Tensor:
        own = [(i.int(), offsets.int()) if at == place else (i, offsets) for at in range(3)]
        return torch.cat([F.embedding_bag(i, t, o) for t, (i, o) in zip(by_place, own, strict=True)], 1)

    stays: list[str] = []
    (plan,), _ = rewritten(model, indices(10), OFFSETS, stays=stays)
    assert modes(plan) == ["copy" if at == place else "mean" for at in range(3)]
    assert stays == ["its indices are int32, those of most bags beside it int64"]


def region(model: Model, *inputs: torch.Tensor) -> BagRegion:
    (found,), left = bags.find(inductor.operators(model, inputs))
    assert left == {}
    assert isinstance(found, BagRegion)
    return found


def pooled(i: torch.Tensor, offsets: torch.Tensor, one: torch.Tensor, two: torch.Tensor) -> torch.Tensor:
    return torch.cat([F.embedding_bag(i, one, offsets), F.embedding_bag(i, two, offsets, mode="max")], 1)


def test_a_place_is_compared_on_rows_that_are_there_and_bags_that_may_be_empty() -> None:
    place = region(pooled, indices(10), OFFSETS, *tables(2))
    assert place.shapes == "4 bags of 2 tables, 16 columns"
    names = [node.name for node in place.match.inputs]
    i, offsets = names.index("arg0_1"), names.index("arg1_1")
    for even in (True, False):
        drawn = place.integers(offsets, even=even)
        assert drawn[0] == 0
        assert bool((drawn.diff() >= 0).all())
        assert int(drawn.max()) <= 10
        assert int(place.integers(i, even=even).max()) < ROWS
    assert place.integers(offsets, even=True).tolist() == [0, 2, 5, 7]
    assert choice.compare(place) is None


def test_offsets_of_no_bag_begin_with_zero() -> None:
    def model(i: torch.Tensor, last: torch.Tensor, one: torch.Tensor, two: torch.Tensor) -> torch.Tensor:
        return torch.cat([F.embedding_bag(i, each, last, include_last_offset=True) for each in (one, two)], 1)

    place = region(model, indices(10), torch.tensor([0]), *tables(2))
    assert choice.compare(place) is None


def test_a_wrong_result_of_one_bit_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    place = region(pooled, indices(10), OFFSETS, *tables(2))
    given = [torch.randn(ROWS, WIDTH) if each.dtype.is_floating_point else None for each in place.tensors]
    drawn = [place.integers(at, even=True) if each is None else each for at, each in enumerate(given)]
    (expected,) = place.alone()(*drawn)
    assert place.kernel.wrong(drawn, [expected]) is None
    expected[0, 0] = torch.nextafter(expected[0, 0], torch.tensor(100.0))
    assert place.kernel.wrong(drawn, [expected]) == "1 of 64 elements are not PyTorch's"


def test_tables_are_cut_to_what_is_needed_and_other_rows_are_looked_up_each_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(bags, "TABLE_BYTES", 2 * 7 * WIDTH * 4)
    place = region(pooled, indices(10), OFFSETS, *tables(2))
    floats = [tuple(each.shape) for each in place.tensors if each.dtype.is_floating_point]
    assert floats == [(7, WIDTH)] * 2
    assert place.read_bytes == (2 * 10 * WIDTH + BATCH * 2 * WIDTH) * 4
    inputs = [torch.zeros(each.shape, dtype=each.dtype) for each in place.tensors]
    torch.manual_seed(0)
    other = place.another(inputs)
    same = [one is two for one, two in zip(inputs, other, strict=True)]
    assert same == [each.dtype.is_floating_point or each.shape == OFFSETS.shape for each in place.tensors]


def test_bags_are_grouped_on_gpus_alone_where_triton_compiles() -> None:
    assert bags.operator_on(torch.device("cpu")) is None
    assert bags.operator_on(torch.device("cuda")) == bag_kernel.NAME


def test_a_table_that_is_copied_as_well_is_not_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    def model(i: torch.Tensor, offsets: torch.Tensor, one: torch.Tensor, two: torch.Tensor) -> torch.Tensor:
        return torch.cat([one, F.embedding_bag(i, one, offsets), F.embedding_bag(i, two, offsets)], 1)

    monkeypatch.setattr(bags, "TABLE_BYTES", 3 * WIDTH * 4)
    place = region(model, indices(40), torch.arange(ROWS) * 2, *tables(2))
    assert sorted(each.shape[0] for each in place.tensors if each.dtype.is_floating_point) == [3, ROWS]
    assert choice.compare(place) is None


def test_a_place_for_which_there_is_no_memory_stays_with_inductor(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any) -> None:
        raise torch.OutOfMemoryError("no room")

    place = region(pooled, indices(10), OFFSETS, *tables(2))
    monkeypatch.setattr(choice, "compare", full)
    found = choice.decide(place, choice.Without({}))
    assert found.why == "there is no memory left to compare and time it here"
    assert not found.lasting
