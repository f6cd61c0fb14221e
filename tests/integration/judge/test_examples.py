"""Every example does what it says: its reference runs on the CPU, in its own dtype and in float64, as declared."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests import REPOSITORY
from warpsmith.kernels_db.job.documents import ResolvedInput, ResolvedWorkload
from warpsmith.kernels_db.spec.op import Op, Target, Workload, load_op
from warpsmith.kernels_db.spec.resolve import build_job, reference_source, resolve_workload, workload_bytes

# Under CI=true a missing torch is an error, as any missing service.
if os.environ.get("CI") == "true":
    import torch
else:
    torch = pytest.importorskip("torch", reason="the references of the examples are written in PyTorch")

from warpsmith.workers.judge.machine.buffers import TensorSpec
from warpsmith.workers.judge.values.inputs import InputSource

EXAMPLES = sorted((REPOSITORY / "examples").glob("*.yaml"))
CPU = Target.parse("cpu:x86_64")
GPU = Target.parse("cuda:sm_90")
GIB = 2**30


def cpu_workloads(role: str) -> list[Any]:
    """The workloads of all examples; of an op with several all but the first are nightly."""
    return [
        pytest.param(op, workload, id=f"{op.name}-{workload.id}", marks=[pytest.mark.nightly] if number else [])
        for op in map(load_op, EXAMPLES)
        for number, workload in enumerate(each for each in op.workloads_for(CPU) if each.role == role)
    ]


def reference(op: Op) -> Callable[..., Any]:
    namespace: dict[str, Any] = {}
    exec(reference_source(op), namespace)
    run: Callable[..., Any] = namespace["run"]
    return run


def made_by_code(source: str, spec: TensorSpec, seed: int) -> torch.Tensor:
    namespace: dict[str, Any] = {}
    exec(source, namespace)
    made: torch.Tensor = namespace["make"](list(spec.shape or ()), spec.dtype, torch.Generator().manual_seed(seed))
    return made


def drawn(resolved: ResolvedWorkload, seed: int) -> list[Any]:
    values = InputSource(resolved["inputs"], seed, made_by_code).draw()
    return [
        item["value"] if value is None else value.clone()
        for item, value in zip(resolved["inputs"], values, strict=True)
    ]


def results(op: Op, resolved: ResolvedWorkload, arguments: list[Any]) -> list[torch.Tensor]:
    """What the reference returns, then what it leaves in the mutated inputs."""
    with torch.no_grad():
        returned = reference(op)(*arguments)
    outputs = [] if returned is None else list(returned) if isinstance(returned, tuple) else [returned]
    assert len(outputs) == len(resolved["outputs"])
    return outputs + [arguments[index] for index in mutated(resolved["inputs"])]


def _is_floating(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.is_floating_point()


def mutated(inputs: list[ResolvedInput]) -> list[int]:
    return [index for index, item in enumerate(inputs) if item["mutated"]]


@pytest.mark.parametrize(("op", "workload"), cpu_workloads("test"))
def test_the_reference_returns_the_declared_outputs(op: Op, workload: Workload) -> None:
    resolved = resolve_workload(op, workload)
    arguments = drawn(resolved, seed=7)
    before = [value.clone() if isinstance(value, torch.Tensor) else value for value in arguments]
    found = results(op, resolved, arguments)
    written = [resolved["inputs"][index] for index in mutated(resolved["inputs"])]
    for declared, tensor in zip([*resolved["outputs"], *written], found, strict=True):
        assert list(tensor.shape) == declared["shape"]
        assert tensor.dtype == getattr(torch, declared["dtype"])
        assert torch.isfinite(tensor.double() if tensor.is_floating_point() else tensor).all()
    for index, value in enumerate(before):
        if isinstance(value, torch.Tensor) and not resolved["inputs"][index]["mutated"]:
            assert torch.equal(value, arguments[index]), (
                f"the reference writes into {resolved['inputs'][index]['name']}"
            )
    exact = [value.double() if _is_floating(value) else value for value in before]
    for tensor, wide in zip(found, results(op, resolved, exact), strict=True):
        if not tensor.is_floating_point():
            assert torch.equal(tensor, wide)
            continue
        assert wide.dtype == torch.float64 or "torch.float" in op.reference  # it names the dtype that it computes in
        assert wide.shape == tensor.shape
        # A result that is wider than an input may have been rounded to that input's dtype on the way, as logits are.
        floating = [tensor, *(value for value in before if _is_floating(value))]
        unit = max(torch.finfo(value.dtype).eps for value in floating)
        # Some roundings of the largest value: on AVX-512 torch's softmax takes an exponential right to 20 units.
        atol = 64 * unit * max(1.0, float(wide.double().abs().max()))
        torch.testing.assert_close(tensor.double(), wide.double(), rtol=0, atol=atol)


@pytest.mark.parametrize(("op", "workload"), cpu_workloads("test"))
def test_other_inputs_give_other_outputs(op: Op, workload: Workload) -> None:
    resolved = resolve_workload(op, workload)
    first = results(op, resolved, drawn(resolved, seed=1))
    second = results(op, resolved, drawn(resolved, seed=2))
    assert not any(torch.equal(one, other) for one, other in zip(first, second, strict=True))


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_is_complete(path: Path) -> None:
    op = load_op(path)
    assert op.name == path.stem
    assert op.description
    for target, most in ((CPU, GIB // 4), (GPU, 24 * GIB)):
        job = build_job(op, target, level="baseline")
        assert {workload["role"] for workload in job["workloads"]} == {"bench", "test", "holdout"}
        for workload in job["workloads"]:
            assert workload_bytes(workload) <= most
            assert workload["min_bytes"] > 0


def test_the_ops_of_the_first_release_are_there() -> None:
    assert {path.stem for path in EXAMPLES} >= {
        "add_relu",
        "add_rms_norm",
        "attention",
        "attention_noncausal",
        "conv2d",
        "conv_relu_maxpool",
        "cross_entropy",
        "dlrm_interaction",
        "fused_add_mul_relu",
        "gelu_tanh",
        "layer_norm",
        "linear_gelu",
        "matmul",
        "mlp_relu_sigmoid",
        "rms_norm",
        "silu_and_mul",
        "softmax",
    }
