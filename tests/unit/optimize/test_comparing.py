"""How a compiled model's results are held against the model's own and against float64."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("torch", reason="results are torch's, which is not installed")

import torch
from torch import nn

from warpsmith.workers.optimize.compiled import comparing
from warpsmith.workers.optimize.compiled.comparing import Ran
from warpsmith.workers.optimize.compiled.inputs import Inputs


def compared(before: Any, after: Any, wide: Any) -> comparing.Comparison:
    return comparing.compare(Ran(before, []), Ran(after, []), None if wide is None else Ran(wide, []))


def test_results_are_held_against_float64() -> None:
    exact = torch.randn(50, 10, dtype=torch.float64)
    before = exact.float()
    assert compared(before, before + 1e-9, exact).agrees
    wrong = before.clone()
    wrong[3, 4] += 0.1
    found = compared(before, wrong, exact)
    assert not found.agrees
    assert found.largest == pytest.approx(0.1, rel=1e-3)
    flipped = compared(before, -before, exact)
    assert flipped.argmax is not None
    assert flipped.argmax < 0.5
    assert compared(before[:, :1], before[:, :1], None).argmax is None
    assert not compared(before, before[:5], None).agrees
    lost, zero = before.clone(), before.clone()
    lost[0, 0], zero[0, 0] = float("nan"), 0.0
    for one, other in ((before, lost), (lost, before), (zero, lost), (lost, zero)):
        for wide in (exact, None):
            found = compared(one, other, wide)
            assert not found.agrees
            assert found.document()["largest_difference"] is None, "JSON has no infinity"
    assert compared(lost, lost, exact).agrees
    endless = before.clone()
    endless[0, 0] = float("inf")
    assert not compared(endless, -endless, exact).agrees
    assert not compared(endless, wrong, exact).agrees
    spoiled = endless.clone()
    spoiled[3, 4] += 0.1
    assert not compared(endless, spoiled, exact).agrees, "the model's own infinity allows nothing"


class Scores(nn.Module):
    """A layer whose results are float32 whatever it computes in, as logits often are."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(64, 32)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x).float()


def test_scores_in_float32_are_exact_beside_a_model_in_half_precision_alone() -> None:
    torch.manual_seed(0)
    model, x = Scores(), torch.randn(8, 64)
    assert comparing.exact(model, Inputs((x,), {})) is None, "float32 is as coarse as the model"
    half, inputs = model.to(torch.bfloat16), Inputs((x.to(torch.bfloat16),), {})
    before = comparing.run(half, inputs)
    after = Ran(before.result * (1 + 2**-9), before.state)
    found = comparing.compare(before, after, comparing.exact(half, inputs))
    assert (found.agrees, found.reference) == (True, "float64")
    wrong = comparing.compare(before, Ran(before.result * 1.1, before.state), comparing.exact(half, inputs))
    assert not wrong.agrees


def test_each_result_is_held_against_its_own_limit() -> None:
    exact = torch.randn(50, dtype=torch.float64)
    rough, fine = exact.float() * 1.01, exact.float()
    found = compared((rough, fine), (rough, fine * 1.001), (exact, exact))
    assert not found.agrees, "that the first is wrong by itself allows the second nothing"
    assert compared((rough, fine), (rough, fine), (exact, exact)).agrees
    assert (found.reference, compared(rough, rough, None).reference) == ("float64", "none")
    assert not compared((fine, None), fine, None).agrees, "another nesting"
    assert not compared((fine, 3), (fine, 4), None).agrees


class Cache:
    """What an engine hands a model: an object that holds tensors, and itself."""

    def __init__(self) -> None:
        self.layers = [{"keys": torch.zeros(4)}]
        self.whole = self


class Writes(nn.Module):
    """Adds to a buffer, to an argument and into an object's tensor, and returns none of these."""

    seen: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("seen", torch.zeros(4))

    def forward(self, x: torch.Tensor, cache: Cache) -> torch.Tensor:
        self.seen.add_(x)
        cache.layers[0]["keys"].copy_(x)
        return x * 2


@pytest.mark.parametrize("where", ["buffer", "cache"])
def test_what_a_call_writes_is_compared_from_a_fresh_start(where: str) -> None:
    model, x, cache = Writes(), torch.arange(4.0), Cache()

    def forgets(x: torch.Tensor, cache: Cache) -> torch.Tensor:
        if where == "buffer":
            cache.layers[0]["keys"].copy_(x)
        else:
            model.seen.add_(x)
        return x * 2

    inputs = Inputs((x, cache))
    before = comparing.run(model, inputs)
    assert comparing.compare(before, comparing.run(model, inputs), None).agrees
    assert not comparing.compare(before, comparing.run(model, inputs, forgets), None).agrees
    assert torch.equal(model.seen, torch.zeros(4)), "the model is as it was"
    assert torch.equal(cache.layers[0]["keys"], torch.zeros(4)), "and so are its arguments"
