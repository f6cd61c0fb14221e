"""Grouped embedding bags on a real GPU: PyTorch's own results to the bit, wherever and however tensors lie."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

if not torch.cuda.is_available():
    pytest.skip("no CUDA GPU on this machine", allow_module_level=True)
pytest.importorskip("triton", reason="Triton is not installed")

import warpsmith
from benchmarks import dlrm
from warpsmith.workers.optimize.compiled import bag_kernel
from warpsmith.workers.optimize.compiled.bag_kernel import Part, Plan

ROOT = Path(__file__).parents[2]
ROWS, BAGS = 1000, 333
DTYPES = (torch.float32, torch.bfloat16, torch.float16)


def call(
    dtype: torch.dtype, width: int = 128, device: str = "cuda:0", integer: torch.dtype = torch.int64, bags: int = BAGS
) -> tuple[list[torch.Tensor], Plan]:
    """Tensors and a plan with every mode: empty bags, padding, weights, bags of one length, rows, a copy."""
    draw = torch.Generator(device).manual_seed(0)
    lengths = torch.randint(0, 9, (bags,), device=device, generator=draw)
    ends = torch.cat([lengths.new_zeros(1), lengths.cumsum(0)]).to(integer)
    count = int(lengths.sum())

    def indices(size: int) -> torch.Tensor:
        return torch.randint(ROWS, (size,), device=device, generator=draw).to(integer)

    tables = [torch.randn(ROWS, width, device=device, generator=draw).to(dtype) for _ in range(4)]
    weights = torch.randn(count, device=device, generator=draw).to(dtype)
    dense = torch.randn(bags, width, device=device, generator=draw).to(dtype)
    tensors = [
        *tables,
        indices(count),
        indices(count),
        indices(3 * bags),
        indices(bags),
        ends,
        ends[:-1],
        weights,
        dense,
    ]
    parts = (
        Part("copy", 11, width),
        Part("sum", 0, width, 4, 9, weights=10),
        Part("mean", 1, width, 5, 9, padding=7),
        Part("max", 2, width, 4, 8, last=True, padding=3),
        Part("sum", 3, width, 6, length=3),
        Part("row", 0, width, 7),
        Part("sum", 2, width, 5, 9),
    )
    return tensors, Plan(parts, False)


def same(tensors: list[torch.Tensor], plan: Plan) -> bool:
    """Whether the kernel's result is PyTorch's, bit by bit."""
    output = bag_kernel.allocated(tensors, plan.written())
    device = output.device
    with torch.cuda.device(device):
        bag_kernel.launch(tensors, plan.written(), output)
    return torch.equal(output, bag_kernel.plain(tensors, plan.written()))


@pytest.mark.parametrize("stacked", [False, True])
@pytest.mark.parametrize("integer", [torch.int64, torch.int32])
@pytest.mark.parametrize("width", [128, 64, 100, 1, 3000])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_results_are_pytorchs_to_the_bit(dtype: torch.dtype, width: int, integer: torch.dtype, stacked: bool) -> None:
    tensors, plan = call(dtype, width, integer=integer)
    assert same(tensors, replace(plan, stacked=stacked))


def test_indices_and_weights_may_lie_apart() -> None:
    tensors, plan = call(torch.float32)
    for at in (4, 5, 6, 7, 10):
        apart = tensors[at].new_zeros(tensors[at].shape[0], 3)
        apart[:, 1] = tensors[at]
        tensors[at] = apart[:, 1]
    assert same(tensors, plan)


def test_tables_and_results_may_begin_anywhere() -> None:
    """A table that no 16 bytes divide is read in smaller vectors."""
    tensors, plan = call(torch.bfloat16)
    shifted = torch.empty(tensors[0].numel() + 1, dtype=torch.bfloat16, device="cuda")[1:].view_as(tensors[0])
    tensors[0] = shifted.copy_(tensors[0])
    assert same(tensors, plan)


def test_batches_are_served_by_one_compilation() -> None:
    compiled: dict[Any, Any] = bag_kernel._write.device_caches[0][0]
    same(*call(torch.bfloat16, bags=64))
    before = len(compiled)
    for bags in (16, 128, 2048):
        tensors, plan = call(torch.bfloat16, bags=bags)
        assert same(tensors, plan)
        for at in range(4, 11):  # where 16 bytes do not divide, as rows of one tensor may begin
            tensors[at] = torch.cat([tensors[at][:1], tensors[at]])[1:]
        assert same(tensors, plan)
    assert len(compiled) == before


def test_more_parts_than_a_launch_has() -> None:
    tensors, plan = call(torch.float32, 32)
    parts = tuple(plan.parts[1 + at % 6] for at in range(2 * bag_kernel.MOST_PARTS + 5))
    assert same(tensors, Plan(parts, False))


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="one GPU")
def test_tensors_of_another_device_than_the_current_one() -> None:
    tensors, plan = call(torch.float32, device="cuda:1")
    with torch.cuda.device(0):
        found = bag_kernel.operator(tensors, plan.written())
        assert torch.cuda.current_device() == 0
    assert bag_kernel.failure() is None
    assert torch.equal(found, bag_kernel.plain(tensors, plan.written()))


def test_a_cuda_graph_reads_what_its_tensors_hold_at_each_replay() -> None:
    tensors, plan = call(torch.bfloat16)
    bag_kernel.operator(tensors, plan.written())
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        found = bag_kernel.operator(tensors, plan.written())
    for _ in range(3):
        for at in (4, 5, 6, 7):
            tensors[at].random_(ROWS)
        tensors[0].normal_()
        graph.replay()
        assert torch.equal(found, bag_kernel.plain(tensors, plan.written()))


@pytest.mark.filterwarnings(  # Inductor's own
    "ignore:.torch.jit.script_method. is deprecated:DeprecationWarning",
    "ignore:TensorFloat32 tensor cores:UserWarning",
    "ignore:The CUDA Graph is empty:UserWarning",
)
@pytest.mark.parametrize("mode", [None, "reduce-overhead"])
def test_a_dlrm_is_right_with_each_batch_and_after_its_tables_moved(mode: str | None) -> None:
    device = torch.device("cuda")
    torch._dynamo.reset()
    torch.manual_seed(0)
    with device:
        model = dlrm.DLRM(dlrm.Sizes(rows=ROWS)).eval()
    fast = warpsmith.optimize(model, mode=mode, kernels=[], keep="right")
    draw = torch.Generator(device).manual_seed(0)
    with torch.no_grad():
        for rows in (256, 256, 256, 2048, 2048, 2048):
            inputs = dlrm.inputs(model, rows, device, draw)
            torch.testing.assert_close(fast(*inputs), model(*inputs))
        for table in model.tables:
            table.weight = torch.nn.Parameter(torch.randn_like(table.weight))
        for _ in range(4):
            inputs = dlrm.inputs(model, 2048, device, draw)
            torch.testing.assert_close(fast(*inputs), model(*inputs))
    assert "1 of 1 places of kernels taken" in fast.report(), fast.report()
    assert bag_kernel.failure() is None


PROGRAM = """
import sys
import torch
from tests.gpu.test_bags import call
from warpsmith.workers.optimize.compiled import bag_kernel
tensors, plan = call(torch.float32)
exec(sys.argv[1])
bag_kernel.operator(tensors, plan.written())
torch.cuda.synchronize()
"""


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ("tensors[5][9] = 1000", "an index is out of range"),
        ("tensors[5][9] = -1", "an index is out of range"),
        ("tensors[9][4] = tensors[9][3] - 1", "a bag ends before it begins"),
    ],
)
def test_what_pytorch_asserts_is_asserted(change: str, told: str) -> None:
    """In a process of its own: it ends the process's use of the device."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, change],
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])},
    )
    assert done.returncode != 0
    assert "device-side assert triggered" in done.stderr
    assert told in done.stderr + done.stdout
