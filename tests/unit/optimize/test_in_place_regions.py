"""Places of an op that writes to its arguments: a position's rotary embedding, cache update and attention."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import fx

from tests.exporting import exported
from warpsmith.kernels_db.export.package import build
from warpsmith.kernels_db.spec.op import load_op
from warpsmith.workers.optimize import shipped
from warpsmith.workers.optimize.compiled import inductor, places
from warpsmith.workers.optimize.compiled.served import Served

pytestmark = pytest.mark.filterwarnings("ignore:.torch.jit.script_method. is deprecated:DeprecationWarning")
"""Inductor imports a module of its own that warns."""

SPEC = Path(__file__).parents[3] / "examples" / "rope_cache_attention.yaml"
NO_KERNEL = "def run(query, key, value, cos, sin, keys, values, length, mask, out):\n    return\n"
BATCH, HEADS, CACHE = 2, 8, 128


@pytest.fixture(scope="module")
def attention(tmp_path_factory: pytest.TempPathFactory) -> Served:
    """The op of the example; nothing here runs its kernel."""
    op = load_op(SPEC).document() | {"targets": {}}
    (found,) = shipped.given([build(exported(op, NO_KERNEL), tmp_path_factory.mktemp("op"))])
    return found


def halves(x: torch.Tensor) -> torch.Tensor:
    """Rotate as Hugging Face's Llama does."""
    return torch.cat((-x[..., x.shape[-1] // 2 :], x[..., : x.shape[-1] // 2]), -1)


def pairs(x: torch.Tensor) -> torch.Tensor:
    """Rotate neighbours against each other, as GPT-J does."""
    return torch.stack((-x[..., 1::2], x[..., ::2]), -1).flatten(-2)


class Step:
    """An attention layer's step as models write it; what is given changes one thing of it."""

    def __init__(self, turned: Callable[[torch.Tensor], torch.Tensor] = halves, **how: bool) -> None:
        self.turned, self.how = turned, how

    def __call__(self, *given: torch.Tensor) -> Any:
        query, key, value, cos, sin, keys, values, length, mask = given
        query, key, value = (x.view(BATCH, 1, -1, 64).transpose(1, 2) for x in (query, key, value))
        cos, sin = cos.unsqueeze(1), sin.unsqueeze(1)
        query = query * cos + self.turned(query) * sin
        key = key * cos + self.turned(key) * sin
        position = torch.arange(1) + length
        more: list[torch.Tensor] = [keys.sum()] if self.how.get("read_before") else []
        more += [position] if self.how.get("position") else []
        length.add_(2 if self.how.get("skips") else 1)
        if self.how.get("copies"):
            keys = keys.index_copy(2, position, key)
        else:
            keys.index_copy_(2, position, key)
        values.index_copy_(2, position, value)
        more += [keys.sum()] if self.how.get("read_after") else []
        key, value = (x[:, :, None].expand(-1, -1, 4, -1, -1).reshape(BATCH, HEADS, CACHE, 64) for x in (keys, values))
        out = torch.nn.functional.scaled_dot_product_attention(query, key, value, attn_mask=mask, scale=0.125)
        return out.transpose(1, 2).reshape(BATCH, 1, -1), *more


def arguments(*, wide: bool = False, overlap: bool = False, cos_rows: int = 1) -> list[torch.Tensor]:
    """A call's tensors. wide: the rows of keys do not lie side by side."""
    dtype = torch.bfloat16
    rows = [torch.zeros(BATCH, 1, 64 * count, dtype=dtype) for count in (HEADS, HEADS // 4, HEADS // 4)]
    turns = [torch.zeros(cos_rows, 1, 64, dtype=dtype) for _ in range(2)]
    shape = (BATCH, HEADS // 4, CACHE, 64)
    cache = [torch.zeros(*shape, dtype=dtype) for _ in range(2)]
    if overlap:
        both = torch.zeros(cache[0].numel() + 64, dtype=dtype)
        cache = [both[:-64].view(shape), both[64:].view(shape)]
    if wide:
        cache[0] = torch.zeros(*shape[:2], CACHE, 2 * 64, dtype=dtype)[..., :64]
    return [*rows, *turns, *cache, torch.tensor(3), torch.ones(BATCH, 1, 1, CACHE, dtype=torch.bool)]


def found_in(attention: Served, step: Callable[..., Any], given: list[torch.Tensor]) -> tuple[fx.Graph, places.Found]:
    graph = inductor.operators(step, given)
    return graph, places.find(graph, [attention])


def targets(graph: fx.Graph) -> list[str]:
    return [str(node.target) for node in graph.nodes if node.op == "call_function"]


@pytest.mark.parametrize("how", ["", "read_before", "read_after"])
def test_a_step_that_writes_to_its_cache_is_one_call_in_place(attention: Served, how: str) -> None:
    """What reads the cache before and after is none of it."""
    graph, found = found_in(attention, Step(**({how: True} if how else {})), arguments())
    assert not found.misses
    (region,) = found.regions
    written = [node for node, _ in region.written]
    places.put(graph, [region])
    assert not {"aten.index_put.default", "aten.neg.default"} & set(targets(graph))
    (call,) = (node for node in graph.nodes if node.target is torch.ops.higher_order.auto_functionalized)
    assert call.args == (attention.call,)
    back = {node.args[0]: node.args[1] for node in graph.nodes if "copy_" in str(node.target)}
    assert list(back) == written == [call.kwargs[name] for name in ("keys", "values", "length")]
    assert [value.args for value in back.values()] == [(call, at) for at in (1, 2, 3)]


def test_a_region_alone_writes_as_the_model_does(attention: Served) -> None:
    _, found = found_in(attention, Step(), arguments())
    (region,) = found.regions
    given = [torch.rand(tensor.shape).to(tensor.dtype) for tensor in region.tensors]
    given[7] = torch.tensor(5)
    kept = [tensor.clone() for tensor in given]
    out, keys, values, length = region.alone()(*given)
    assert all(torch.equal(one, other) for one, other in zip(given, kept, strict=True))
    (again,) = region.alone(in_place=True)(*given)
    pairs_of = zip((again, *given[5:8]), (out, keys, values, length), strict=True)
    assert all(torch.equal(one, other) for one, other in pairs_of)


@pytest.mark.parametrize(
    "step",
    [
        Step(pairs),
        Step(lambda x: halves(-x)),
        Step(lambda x: torch.cat((halves(x[..., :32]), x[..., 32:]), -1)),
        Step(position=True),
        Step(skips=True),
    ],
    ids=["pairs", "other way round", "half of a head", "position used elsewhere", "counts by two"],
)
def test_what_computes_something_else_is_no_place(attention: Served, step: Step) -> None:
    _, found = found_in(attention, step, arguments())
    assert (found.regions, found.misses) == ([], [])


def test_a_step_under_autocast_is_no_place(attention: Served) -> None:
    def step(*given: torch.Tensor) -> Any:
        with torch.autocast("cpu", torch.bfloat16):
            return Step()(*(x.float() if x.is_floating_point() else x for x in given))

    _, found = found_in(attention, step, arguments())
    assert (found.regions, found.misses) == ([], [])


def test_caches_that_share_their_memory_are_no_place(attention: Served) -> None:
    """PyTorch then writes to the memory that both are views of."""
    _, found = found_in(attention, Step(), arguments(overlap=True))
    assert (found.regions, found.misses) == ([], [])


@pytest.mark.parametrize(
    ("how", "given", "why"),
    [
        ({"copies": True}, {}, "keys, which the op writes to, is left as it was, or with another value"),
        ({}, {"wide": True}, "keys, which the op writes to, is not contiguous, or has other axes"),
        ({}, {"cos_rows": BATCH}, f"cos.shape[0] is {BATCH}, expected one = 1"),
    ],
    ids=["not in place", "not contiguous", "cosines of each row"],
)
def test_a_near_miss_says_why(attention: Served, how: dict[str, bool], given: dict[str, Any], why: str) -> None:
    _, found = found_in(attention, Step(**how), arguments(**given))
    assert not found.regions
    assert [said for _, said in found.misses] == [why]


def test_a_cache_that_is_read_as_it_was_after_the_op_is_no_place(attention: Served) -> None:
    graph = inductor.operators(Step(), arguments())
    keys = [node for node in graph.nodes if node.op == "placeholder"][5]
    output = next(node for node in graph.nodes if node.op == "output")
    with graph.inserting_before(output):
        late = graph.call_function(torch.ops.aten.sum.default, (keys,))
    output.args = ((*output.args[0], late),)
    found = places.find(graph, [attention])
    assert [said for _, said in found.misses] == ["keys, which the op writes to, is read as it was after the op"]
