"""What a tensor was drawn from, as seen in PyTorch's own calls; and code for a GPU run where there is none."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="what is recorded is PyTorch")

from warpsmith.kernels_db.job.stand_in import on  # noqa: E402
from warpsmith.workers.judge.analysis.recording import Recorder  # noqa: E402

DEVICES = ["meta", "cpu"]
NORMAL = {"kind": "normal", "mean": 0.0, "std": 1.0}
UNIT = {"kind": "uniform", "low": 0.0, "high": 1.0}


def partly_written() -> Any:
    tensor = torch.randn(4)
    tensor[1] = 3.0
    return tensor


def filled_in_place() -> Any:
    return torch.empty(3).normal_(2.0, 0.5).mul_(2.0)


CASES: dict[str, tuple[Callable[[], Any], dict[str, Any] | None]] = {
    "randn": (lambda: torch.randn(3, 4), NORMAL),
    "randn in half": (lambda: torch.randn(3, dtype=torch.float16).contiguous(), NORMAL),
    "randn cast": (lambda: torch.randn(3).to(torch.bfloat16), NORMAL),
    "rand": (lambda: torch.rand(3), UNIT),
    "rand scaled and shifted": (lambda: torch.rand(3) * 4 - 2, {"kind": "uniform", "low": -2.0, "high": 2.0}),
    "rand turned round": (lambda: -2.0 * torch.rand(3) + 1, {"kind": "uniform", "low": -1.0, "high": 1.0}),
    "randn divided": (lambda: torch.randn(3) / 4, {"kind": "normal", "mean": 0.0, "std": 0.25}),
    "randint": (lambda: torch.randint(0, 9, (3,)), {"kind": "randint", "low": 0, "high": 9}),
    "randint from": (lambda: torch.randint(-5, 5, (3,), dtype=torch.int8), {"kind": "randint", "low": -5, "high": 5}),
    "ones": (lambda: torch.ones(3), {"kind": "constant", "value": 1}),
    "full": (lambda: torch.full((3,), 2.5), {"kind": "constant", "value": 2.5}),
    "zeros like": (lambda: torch.zeros_like(torch.randn(3)), {"kind": "constant", "value": 0}),
    "empty": (lambda: torch.empty(3), {"kind": "empty"}),
    "a view": (lambda: torch.randn(3, 4).transpose(0, 1), NORMAL),
    "a parameter": (lambda: torch.nn.Parameter(torch.randn(3) * 0.5), {"kind": "normal", "mean": 0.0, "std": 0.5}),
    "in place": (filled_in_place, {"kind": "normal", "mean": 4.0, "std": 1.0}),
    "a layer's weight": (lambda: torch.nn.Linear(4, 2).bias, {"kind": "uniform", "low": -0.5, "high": 0.5}),
    "written in part": (partly_written, None),
    "broadcast": (lambda: torch.rand(1, 4).expand(3, 4), None),
    "computed": (lambda: torch.softmax(torch.randn(3), 0), None),
    "times another": (lambda: torch.randn(3) * torch.randn(3), None),
    "times nothing": (lambda: torch.randn(3) * 0, None),
    "floats as integers": (lambda: torch.randn(3).to(torch.int64), None),
    "values that were given": (lambda: torch.tensor([1.0, 2.0]), None),
}


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", CASES)
def test_what_a_tensor_was_drawn_from_is_seen(name: str, device: str) -> None:
    make, expected = CASES[name]
    recorder = Recorder()
    with on(torch.device(device)), recorder:
        made = make()
    found = recorder.of(made)
    assert found == (expected if expected is None else pytest.approx(expected))


def test_a_tensor_from_elsewhere_is_not_known() -> None:
    assert Recorder().of(torch.randn(3)) is None


@pytest.mark.parametrize("device", DEVICES)
def test_code_for_a_gpu_runs_where_there_is_none(device: str) -> None:
    with on(torch.device(device)):
        generator = torch.Generator(device="cuda")
        generator.manual_seed(7)
        made = torch.randn(3, device="cuda", generator=generator).cuda()
        moved = torch.nn.Linear(2, 2).cuda().to("cuda:0").weight.to(torch.device("cuda"))
    assert {made.device.type, moved.device.type} == {device}
    if device == "cpu":
        assert torch.equal(made, torch.randn(3, generator=torch.Generator().manual_seed(7)))


def test_torch_is_as_it_was_afterwards() -> None:
    kept = torch.Generator
    with pytest.raises(ZeroDivisionError), on(torch.device("meta")):
        torch.ones(1 // 0)
    assert torch.Generator is kept
    assert torch.ones(1).device.type == "cpu"
