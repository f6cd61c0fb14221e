"""`warpsmith.record` around real calls: what it counts, what it leaves alone, and that it breaks nothing."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import warpsmith
from warpsmith.kernels_db.spec.op import load_op, parse_op
from warpsmith.workers.recording import hooks
from warpsmith.workers.recording.calls import Call, TensorOf, read_calls
from warpsmith.workers.recording.fitting import fit, with_workloads
from warpsmith.workers.recording.tally import Tally


class LlamaRMSNorm(nn.Module):
    """As models write it: by torch's function, with a weight."""

    def __init__(self, hidden: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(hidden, dtype=torch.bfloat16))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return nn.functional.rms_norm(x, self.weight.shape, self.weight, 1e-6)


class Block(nn.Module):
    """A normalisation and a softmax."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = LlamaRMSNorm(64)

    def forward(self, x: torch.Tensor, *, scale: float = 1.0) -> torch.Tensor:
        return torch.softmax(self.norm(x) * scale, dim=-1)


def ones(*shape: int) -> torch.Tensor:
    return torch.ones(shape, dtype=torch.bfloat16)


def test_functions_and_modules_are_counted_by_shape(examples: Path, tmp_path: Path) -> None:
    model = Block()
    with warpsmith.record(model, tmp_path / "calls.json") as recording:
        for length in (1, 1, 1, 16):
            model(ones(2, length, 64))
        nn.functional.silu(ones(3))  # outside of the model
    names = recording.calls.by_name()
    mine = f"{__name__}."
    assert {name.removeprefix(mine): count for name, count in names.items()} == {
        "Block": 4,
        "LlamaRMSNorm": 4,
        "torch.nn.functional.rms_norm": 4,
        "torch.softmax": 4,
    }
    found = read_calls([tmp_path / "calls.json"])
    assert found.counts == recording.calls.counts
    x, weight = TensorOf((2, 1, 64), "bfloat16", "cpu"), TensorOf((64,), "bfloat16", "cpu")
    assert found.counts[Call("module", f"{mine}LlamaRMSNorm", (x,), (), (("weight", weight),))] == 3
    fitted = fit(load_op(examples / "rms_norm.yaml"), found)
    assert {dict(shape.sizes)["tokens"]: count for shape, count in fitted.counts.items()} == {2: 3, 32: 1}
    assert "1.0" not in (tmp_path / "calls.json").read_text(), "no value is kept"


def test_without_a_model_everything_is_recorded_and_nothing_after() -> None:
    with warpsmith.record() as recording:
        nn.functional.silu(ones(3))
        Block()(ones(1, 64), scale=2.0)
    before = recording.calls
    nn.functional.silu(ones(3))
    Block()(ones(1, 64))
    assert before.by_name()["torch.nn.functional.silu"] == 1
    assert recording.calls.counts == before.counts
    (block,) = (call for call in before.counts if call.name.endswith(".Block"))
    assert block.keywords == (("scale", "float"),)


def test_strides_are_kept_where_a_tensor_is_not_contiguous() -> None:
    with warpsmith.record() as recording:
        nn.functional.silu(ones(4, 8).t())
    (call,) = recording.calls.counts
    assert call.arguments == (TensorOf((8, 4), "bfloat16", "cpu", (1, 8)),)


def test_modules_of_every_thread_are_recorded() -> None:
    block = Block()
    with warpsmith.record() as recording:
        threads = [threading.Thread(target=lambda: [block(ones(1, 64)) for _ in range(50)]) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert recording.calls.by_name()[f"{__name__}.Block"] == 200


def test_a_call_that_raises_leaves_the_recording_right() -> None:
    model = Block()
    with warpsmith.record(model) as recording:
        with pytest.raises(RuntimeError):
            model(torch.ones(2, 3, dtype=torch.bfloat16))
        nn.functional.silu(ones(3))  # the model is left, so this is outside of it
        model(ones(1, 64))
    assert recording.calls.by_name()[f"{__name__}.Block"] == 1
    assert "torch.nn.functional.silu" not in recording.calls.by_name()


def test_an_error_of_the_recording_is_noted_and_the_call_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_value: Any) -> Any:
        raise ValueError("secret")

    monkeypatch.setattr(hooks, "_look", fail)
    with warpsmith.record() as recording:
        assert nn.functional.silu(ones(3)).shape == (3,)
    assert recording.calls.counts == {}
    (note,) = recording.calls.notes
    assert "(ValueError)" in note
    assert "secret" not in note


@pytest.mark.parametrize("functions", [True, False])
def test_a_whole_graph_is_compiled_while_it_is_recorded(functions: bool) -> None:
    model = Block()
    expected = model(ones(5, 64))
    with warpsmith.record(functions=functions) as recording:
        compiled = torch.compile(model, backend="eager", fullgraph=True)
        assert torch.equal(compiled(ones(5, 64)), expected)
        assert torch.equal(compiled(ones(5, 64)), expected)
    assert recording.calls.notes == {}
    assert f"{__name__}.Block" not in recording.calls.by_name(), "what is compiled is not seen"


@pytest.mark.filterwarnings("ignore:`torch.jit.trace:DeprecationWarning")
def test_traced_and_fake_calls_are_none() -> None:
    block = Block()
    with warpsmith.record() as recording:
        torch.jit.trace(block, ones(2, 64), check_trace=False)
        torch.export.export(block, (ones(2, 64),))
    assert recording.calls.counts == {}
    assert recording.calls.notes == {}


def test_an_operator_of_a_library_is_recorded_by_its_name() -> None:
    library = torch.library.Library("warpsmith_recorded", "DEF")
    library.define("twice(Tensor x) -> Tensor")
    library.impl("twice", lambda x: x * 2, "CompositeExplicitAutograd")
    with warpsmith.record() as recording:
        torch.ops.warpsmith_recorded.twice(ones(2, 3))
    assert recording.calls.by_name() == {"torch.ops.warpsmith_recorded.twice": 1}


def test_nothing_is_left_of_a_recording() -> None:
    model = nn.Linear(2, 2)
    with warpsmith.record(model):
        model(torch.ones(1, 2))
    assert not nn.modules.module._has_any_global_hook()
    assert not model._forward_hooks
    assert not model._forward_pre_hooks


def test_memory_is_bounded_and_what_is_dropped_is_told() -> None:
    tally = Tally(hooks.read, most=2)
    for size in (1, 2, 3, 4, 1):
        tally.add((nn.ReLU, ((torch.Size([size]), torch.float32, torch.device("cpu"), None),), (), ()))
    found = tally.calls()
    assert sorted(found.counts.values()) == [1, 2]
    assert found.dropped == {"torch.nn.modules.activation.ReLU": 2}


def test_a_block_is_entered_once() -> None:
    recording = warpsmith.record()
    with recording, pytest.raises(RuntimeError, match=r"expected a `warpsmith\.record` for each"):
        recording.__enter__()
    with recording:
        nn.functional.silu(ones(3))
    assert recording.calls.by_name() == {"torch.nn.functional.silu": 1}


def test_a_path_that_cannot_be_written_is_an_error_of_the_block(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(OSError), warpsmith.record(path=tmp_path / "file" / "calls.json"):
        pass
    with pytest.raises(KeyError), warpsmith.record(path=tmp_path / "file" / "calls.json"):
        raise KeyError


def test_a_model_of_transformers_becomes_workloads(examples: Path) -> None:
    """Prefill and decode of a small Llama with random weights: how often each shape was called is the weight."""
    transformers = pytest.importorskip("transformers", reason="the extra `models` is not installed")
    config = transformers.LlamaConfig(
        hidden_size=64,
        intermediate_size=96,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        vocab_size=50,
        pad_token_id=None,
    )
    model = transformers.LlamaForCausalLM(config).eval().to(torch.bfloat16)
    with torch.no_grad(), warpsmith.record(model) as recording:
        found = model(input_ids=torch.ones((2, 7), dtype=torch.int64), use_cache=True)
        for _ in range(3):
            token = torch.ones((2, 1), dtype=torch.int64)
            found = model(input_ids=token, past_key_values=found.past_key_values, use_cache=True)
    op = load_op(examples / "rms_norm.yaml")
    fitted = fit(op, recording.calls)
    assert {dict(shape.sizes)["tokens"]: count for shape, count in fitted.counts.items()} == {14: 5, 2: 15}
    bench = parse_op(with_workloads(op, fitted, "cpu")[0]).workloads_by_device()["cpu"][:2]
    assert [(one.axes, one.weight) for one in bench] == [
        ({"tokens": 2, "hidden": 64}, 15),
        ({"tokens": 14, "hidden": 64}, 5),
    ]
    assert recording.calls.notes == {}
