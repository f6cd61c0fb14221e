"""Which recorded calls are an op, and the workloads that come of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.unit.spec.specs import spec
from warpsmith.kernels_db.spec.op import Op, load_op, parse_op
from warpsmith.workers.recording.calls import Call, Calls, TensorOf
from warpsmith.workers.recording.fitting import Shape, fit, is_call_of, with_workloads

RMS = "torch.nn.functional.rms_norm"
LAYER = "vllm.model_executor.layers.layernorm.RMSNorm"


def tensor(*shape: int, dtype: str = "bfloat16", device: str = "cuda", strides: Any = None) -> TensorOf:
    return TensorOf(shape, dtype, device, strides)


def norm(*shape: int, **changes: Any) -> Call:
    """A call of torch's function."""
    return Call("function", RMS, (tensor(*shape, **changes), "tuple", tensor(shape[-1]), "float"))


@pytest.fixture
def rms_norm(examples: Path) -> Op:
    return load_op(examples / "rms_norm.yaml")


def sizes(tokens: int, hidden: int) -> Shape:
    return Shape((("tokens", tokens), ("hidden", hidden)))


@pytest.mark.parametrize(
    ("name", "told"),
    [("RMSNorm", True), ("layernorm.RMSNorm", True), (LAYER, True), ("Norm", False), ("x.RMSNorm", False)],
)
def test_a_name_may_leave_out_its_first_parts(name: str, told: bool) -> None:
    assert is_call_of(Call("module", LAYER), [name]) is told


def test_leading_axes_are_one(rms_norm: Op) -> None:
    fitted = fit(rms_norm, Calls({norm(2, 3, 64): 5, norm(6, 64): 1, norm(64): 2}))
    assert fitted.counts == {sizes(6, 64): 6, sizes(1, 64): 2}
    assert fitted.device() == "cuda"


def test_a_module_brings_its_own_parameters(rms_norm: Op, examples: Path) -> None:
    weight = (("weight", tensor(64)),)
    alone = Call("module", LAYER, (tensor(8, 64),), (), weight)
    fused = Call("module", LAYER, (tensor(8, 64), tensor(8, 64)), (), weight)
    named = Call("module", LAYER, (tensor(8, 64),), (("residual", tensor(8, 64)),), weight)
    calls = Calls({alone: 1, fused: 10, named: 100})
    assert fit(rms_norm, calls).counts == {sizes(8, 64): 1}
    assert fit(load_op(examples / "add_rms_norm.yaml"), calls).counts == {sizes(8, 64): 110}


def test_a_module_and_the_function_inside_of_it_are_one_call(rms_norm: Op) -> None:
    module = Call("module", "m.LlamaRMSNorm", (tensor(8, 64),), (), (("weight", tensor(64)),))
    assert fit(rms_norm, Calls({module: 32, norm(8, 64): 33})).counts == {sizes(8, 64): 33}


def test_an_axis_that_no_input_has_is_found_from_one_that_depends_on_it(examples: Path) -> None:
    op = load_op(examples / "silu_and_mul.yaml")
    even, odd = (Call("module", "vllm.SiluAndMul", (tensor(4, packed),)) for packed in (128, 127))
    fitted = fit(op, Calls({even: 2, odd: 1}))
    assert fitted.counts == {sizes(4, 64): 2}
    assert [reason.partition(": ")[2] for reason in fitted.refused] == [
        "axes.hidden: found no tensor of the call that has it, expected an axis of an input"
    ]


@pytest.mark.parametrize(
    ("call", "reason"),
    [
        (norm(8, 64, dtype="float32"), "inputs.x.dtype: found float32, expected bfloat16"),
        (norm(8, 64, strides=(1, 8)), "inputs.x.strides: found (1, 8), expected contiguous"),
        (Call("function", RMS, (tensor(8, 64),)), "inputs: found 1 tensors, expected 2: x, weight"),
        (Call("function", RMS, (tensor(8, 64), tensor(32))), "inputs.weight.shape[0]: found 32, expected 64 (hidden)"),
        (Call("function", RMS, (tensor(8, 64), tensor(1, 64))), "inputs.weight.shape: found [1, 64], expected 1 axes"),
        (norm(0, 64), "axes: found tokens=0, hidden=64, expected tokens of at least 1"),
    ],
)
def test_a_call_that_is_none_of_the_op_says_why(call: Call, reason: str, rms_norm: Op) -> None:
    fitted = fit(rms_norm, Calls({call: 4}))
    assert fitted.counts == {}
    assert fitted.refused == {f"{RMS}: {reason}": 4}


def test_constraints_and_constant_axes_hold() -> None:
    document = spec(calls=["f"])
    document["constraints"] = ["tokens % 3 != 0"]
    op = parse_op(document)
    rows = TensorOf((4,), "int64", "cpu")
    good, odd, narrow = (
        Call("function", "m.f", (TensorOf(shape, "float32", "cpu"), TensorOf(shape[:1], "int64", "cpu"), "float"))
        for shape in ((4, 32), (3, 32), (4, 30))
    )
    fitted = fit(op, Calls({good: 1, odd: 1, narrow: 1}))
    assert fitted.counts == {Shape((("tokens", rows.shape[0]),)): 1}
    assert sorted(fitted.refused) == [
        "m.f: axes: found tokens=3, expected tokens % 3 != 0",
        "m.f: inputs.x.shape: found 30, expected 32 (twice)",
    ]


def test_the_most_frequent_shapes_become_bench_workloads_with_weights(rms_norm: Op) -> None:
    calls = Calls({norm(tokens, 4096): count for tokens, count in ((1, 900), (64, 90), (8192, 9), (7, 1))})
    document, left = with_workloads(rms_norm, fit(rms_norm, calls), "cuda", most=3)
    made = parse_op(document)
    bench = [one for one in made.workloads if one.role == "bench"]
    assert [(one.axes["tokens"], one.weight) for one in bench] == [(1, 900), (64, 90), (8192, 9)]
    assert left == 1
    assert [one for one in made.workloads if one.role != "bench"] == [
        one for one in rms_norm.workloads if one.role != "bench"
    ]
    assert made.targets == rms_norm.targets, "those of the CPU are another list"
    assert made.semantic_digest == rms_norm.semantic_digest
    on_cpu = parse_op(with_workloads(rms_norm, fit(rms_norm, calls), "cpu")[0])
    assert on_cpu.workloads == rms_norm.workloads
    assert [one.weight for one in on_cpu.workloads_by_device()["cpu"] if one.role == "bench"] == [900, 90, 9, 1]


def test_an_optional_input_may_be_left_out() -> None:
    document = spec(calls=["f"])
    document["inputs"][1]["optional"] = True
    call = Call("function", "m.f", (TensorOf((4, 32), "float32", "cpu"),))
    op = parse_op(document)
    fitted = fit(op, Calls({call: 2}))
    made = parse_op(with_workloads(op, fitted, "cpu")[0])
    assert made.workloads[0].inputs["rows"].omit


def of_two_dtypes(rms_norm: Op) -> Op:
    document = rms_norm.document()
    document["dtypes"] = {"elem": ["bfloat16", "float32"]}
    for item in (*document["inputs"], *document["outputs"]):
        item["dtype"] = "elem"
    for section in (document, *document.get("targets", {}).values()):
        section["workloads"] = [
            {**item, "id": f"{item['id']}-{dtype}", "dtypes": {"elem": dtype}}
            for item in section["workloads"]
            for dtype in ("bfloat16", "float32")
        ]
    return parse_op(document)


def called(dtype: str, *shape: int) -> Call:
    arguments = tensor(*shape, dtype=dtype), "tuple", tensor(shape[-1], dtype=dtype), "float"
    return Call("function", RMS, arguments)


def test_calls_of_an_op_with_named_dtypes_become_workloads_of_theirs(rms_norm: Op) -> None:
    op = of_two_dtypes(rms_norm)
    mixed = Call("function", RMS, (tensor(6, 64), "tuple", tensor(64, dtype="float32"), "float"))
    fitted = fit(op, Calls({called("bfloat16", 6, 64): 5, called("bfloat16", 8, 64): 1, mixed: 1}))
    assert {(shape.sizes, shape.dtypes) for shape in fitted.counts} == {
        (sizes(rows, 64).sizes, (("elem", "bfloat16"),)) for rows in (6, 8)
    }
    (reason,) = fitted.refused
    assert reason.endswith("dtype: found float32, expected bfloat16")
    found, _ = with_workloads(op, fitted, "cuda")
    bench = [item for item in parse_op(found).workloads if item.role == "bench"]
    assert {item.id for item in bench if item.dtypes["elem"] == "bfloat16"} == {
        "tokens6-hidden64-bfloat16",
        "tokens8-hidden64-bfloat16",
    }
    assert [item for item in bench if item.dtypes["elem"] == "float32"], "those of dtypes that no call has stay"
    other = fit(op, Calls({called("float16", 6, 64): 1}))
    assert next(iter(other.refused)).endswith("found float16, expected bfloat16 or float32")


def test_a_rare_dtype_has_a_workload_as_well(rms_norm: Op) -> None:
    op = of_two_dtypes(rms_norm)
    calls = Calls({called("bfloat16", rows, 64): 100 for rows in range(1, 9)} | {called("float32", 6, 64): 1})
    document, left = with_workloads(op, fit(op, calls), "cuda", most=8)
    bench = [one for one in parse_op(document).workloads if one.role == "bench"]
    assert [(one.dtypes["elem"], one.weight) for one in bench] == [("bfloat16", 100)] * 7 + [("float32", 1)]
    assert left == 100
    document, left = with_workloads(op, fit(op, calls), "cuda", most=1)
    recorded, *others = (one for one in parse_op(document).workloads if one.role == "bench")
    assert (recorded.dtypes["elem"], recorded.weight, left) == ("bfloat16", 100, 701)
    assert {one.dtypes["elem"] for one in others} == {"float32"}, "those of the op stay where there is no room"
