"""Launch plans on a real GPU: CUDA and Triton kernels replayed by the driver, to the bits of the Python path.

Plans as CUDA graphs (the tests that use `graphed`) passed on one H200, but for the one that is built during a capture,
whose memory PyTorch had let go: it was changed since. Those that need two GPUs passed on two H200s.
"""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

pytest.importorskip("pydantic", reason="op specs are read with pydantic")
if not torch.cuda.is_available():
    pytest.skip("no CUDA GPU on this machine", allow_module_level=True)

from benchmarks import dispatch
from tests.gpu.building import need_language
from warpsmith.kernels_db.export.package import build
from warpsmith.kernels_db.job.envelope import build_envelope
from warpsmith.kernels_db.spec.op import Target, parse_op
from warpsmith.kernels_db.spec.resolve import resolve_workload
from warpsmith.workers.judging import machine

SOURCES = {
    "cuda": ("cuda", dispatch.CUDA, 1),
    "cuda, three launches": ("cuda", dispatch.CUDA_THREE, 3),
    "triton": ("triton", dispatch.TRITON, 1),
    "gluon": ("gluon", dispatch.GLUON, 1),
    "cute": ("cute", dispatch.CUTE, 1),
    "tilelang": ("tilelang", dispatch.TILELANG, 1),
    "triton, three launches": ("triton", dispatch.TRITON_THREE, 3),
}
SIZES = (4096, 16384)
Importer = Callable[..., ModuleType]
CLUSTERED = '''from kernels_db.runtime import cuda

kernels = cuda.compile(r"""
#include <cooperative_groups.h>
namespace cg = cooperative_groups;
extern "C" __global__ void scale_shift(const float* x, float* y, int n, float by, bool twice) {
    extern __shared__ float tile[];
    cg::cluster_group group = cg::this_cluster();
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    tile[threadIdx.x] = i < n ? x[i] : 0.0f;
    __syncthreads();
    if (i < n && group.num_blocks() > 1) y[i] = tile[threadIdx.x] * (twice ? 2.0f : 1.0f) + by;
}
""")


def run(x, y):
    n = x.numel()
    kernels.scale_shift.launch((n + 255) // 256, 256, x, y, n, 1.0, True, shared_bytes=65536, cluster=2)
'''
COOPERATIVE = CLUSTERED.replace(
    "cg::cluster_group group = cg::this_cluster();", "cg::grid_group group = cg::this_grid();\n    group.sync();"
).replace("cluster=2", "cooperative=True")
LOAD_TILE = """extern "C" __global__ void load_tile(const __grid_constant__ CUtensorMap map, float* y) {
    __shared__ alignas(128) float box[32 * 32];
    __shared__ alignas(8) unsigned long long barrier;
    const unsigned at = __cvta_generic_to_shared(&barrier), to = __cvta_generic_to_shared(box);
    const int row = blockIdx.x * 32;
    if (threadIdx.x == 0) {
        asm volatile("mbarrier.init.shared.b64 [%0], 1;" :: "r"(at));
        asm volatile("fence.mbarrier_init.release.cluster;");
        asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], 4096;" :: "r"(at));
        asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes "
                     "[%0], [%1, {0, %3}], [%2];" :: "r"(to), "l"(&map), "r"(at), "r"(row) : "memory");
    }
    __syncthreads();
    asm volatile("{ .reg .pred p; L: mbarrier.try_wait.parity.shared.b64 p, [%0], 0; @!p bra L; }"
                 :: "r"(at) : "memory");
    for (int i = threadIdx.x; i < 1024; i += blockDim.x) y[blockIdx.x * 1024 + i] = box[i] * 2.0f + 1.0f;
}
"""
"""A kernel that loads by a tensor map."""
TENSOR_MAP = (
    '''from kernels_db.runtime import cuda

kernels = cuda.compile(r"""
'''
    + LOAD_TILE
    + '''""")


def run(x, y):
    rows = x.numel() // 32
    kernels.load_tile[rows // 32, 128](cuda.tensor_map(x.view(rows, 32), (32, 32)), y)
'''
)

OPTIONS_THREE = (
    '''import torch
from kernels_db.runtime import cuda

kernels = cuda.compile(r"""
#include <cooperative_groups.h>
namespace cg = cooperative_groups;
extern "C" __global__ void scale(const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n && cg::this_cluster().num_blocks() == 2) y[i] = x[i] * 2.0f;
}
extern "C" __global__ void shift(const float* x, float* y, float by, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    cg::this_grid().sync();
    if (i < n) y[i] = x[i] + by;
}
'''
    + LOAD_TILE.replace("box[i] * 2.0f + 1.0f", "box[i] + 0.5f")
    + '''""")


def run(x, y):
    n = x.numel()
    rows, blocks = n // 32, (n + 255) // 256
    scaled = torch.empty(n, dtype=torch.float32, device=x.device)
    halfway = torch.empty_like(scaled)
    kernels.scale.launch(blocks, 256, x, scaled, n, cluster=2)
    kernels.shift.launch(blocks, 256, scaled, halfway, 0.5, n, cooperative=True)
    kernels.load_tile[rows // 32, 128](cuda.tensor_map(halfway.view(rows, 32), (32, 32)), y)
'''
)

DESCRIPTORS = """import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor


@triton.jit
def scale_shift(x, y, ROWS: tl.constexpr):
    row = tl.program_id(0) * ROWS
    y.store([row, 0], x.load([row, 0]) * 2.0 + 1.0)


def run(x, y):
    rows = x.numel() // 32
    source = TensorDescriptor.from_tensor(x.view(rows, 32), [16, 32])
    target = TensorDescriptor.from_tensor(y.view(rows, 32), [16, 32])
    scale_shift[(rows // 16,)](source, target, ROWS=16)
"""


@pytest.fixture
def imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Importer:
    """Export a kernel of `benchmarks.dispatch`'s op, verified at SIZES, and import it."""

    def use(language: str, source: str) -> ModuleType:
        need_language(language)
        kernel = dispatch.kernel(language, machine.gpus()[0].target, source)
        sizes = [{"id": f"n{n}", "role": "bench" if n == SIZES[0] else "test", "axes": {"n": n}} for n in SIZES]
        op = parse_op({**kernel.spec, "workloads": sizes})
        workloads = [resolve_workload(op, each) for each in op.workloads_for(Target.parse(kernel.target))]
        envelope = build_envelope(op.digest, kernel.target, workloads, {}) | {"name": request.node.name}
        empty: dict[str, Any] = {"error": {}, "time_us": {}, "speedup": {}, "ci95": {}}
        evidence = kernel.evidence | {"workloads": [{"id": s["id"], "role": "test", **empty} for s in sizes]}
        made = replace(kernel, spec=op.document(), envelope=envelope, evidence=evidence)
        project = build(made, tmp_path)
        monkeypatch.syspath_prepend(project)
        return importlib.import_module(project.name)

    return use


def replaying(package: ModuleType, device: str = "cuda") -> Any:
    """The op, once a plan of each size serves it."""
    for n in SIZES:
        for _ in range(5):
            package.scale_shift(torch.randn(n, device=device))
    found = package.status()["plans"]
    assert (found["refused"], found["unavailable"], found["recorded"]) == ({}, None, len(SIZES)), found
    assert found["replayed"] >= 1, found
    return package.scale_shift


def by_python(package: ModuleType, x: torch.Tensor) -> torch.Tensor:
    """The op's result without any plan."""
    with importlib.import_module(f"{package.__name__}._plans").without():
        out: torch.Tensor = package.scale_shift(x)
        return out


def replayed(package: ModuleType) -> int:
    return int(package.status()["plans"]["replayed"])


@pytest.mark.parametrize("case", SOURCES)
def test_a_plan_gives_the_bits_of_the_python_path(imported: Importer, case: str) -> None:
    language, source, launches = SOURCES[case]
    package = imported(language, source)
    op = replaying(package)
    before = replayed(package)
    for n in SIZES:
        for _ in range(10):
            x = torch.randn(n, device="cuda")
            y = op(x)
            assert torch.equal(y, by_python(package, x))
            torch.testing.assert_close(y, x * 2 + 1)
    assert replayed(package) > before
    with torch.inference_mode():
        assert op(x).is_inference()
        assert torch.equal(op(x), y)
    measured = importlib.import_module(f"{package.__name__}.overhead").measured()
    assert measured.launches == launches
    assert bool(measured.graphs) == (launches > 1)  # several launches are one CUDA graph
    assert measured.microseconds["op"] < measured.microseconds["op_without_plan"], measured


@pytest.mark.parametrize(
    ("language", "source"),
    [("cuda", CLUSTERED), ("cuda", COOPERATIVE), ("cuda", TENSOR_MAP), ("triton", DESCRIPTORS)],
    ids=["cluster", "cooperative", "tensor map", "tensor descriptor"],
)
def test_the_launchs_options_and_tensor_maps_are_replayed(imported: Importer, language: str, source: str) -> None:
    if torch.cuda.get_device_capability() < (9, 0):
        pytest.skip("clusters and tensor maps need compute capability 9.0")
    package = imported(language, source)
    op = replaying(package)
    held = [torch.randn(n, device="cuda") for n in SIZES for _ in range(5)]
    for x in held:
        assert torch.equal(op(x), x * 2 + 1)
    assert package.status()["served"]["pytorch"] == 0


@pytest.mark.parametrize("case", SOURCES)
def test_a_plan_is_captured_and_replayed_by_a_graph(imported: Importer, case: str) -> None:
    package = imported(*SOURCES[case][:2])
    op = replaying(package)
    x = torch.randn(4096, device="cuda")
    op(x)
    before = replayed(package)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = op(op(x))
    assert replayed(package) == before + 2
    for value in (1.0, 5.0):
        x.fill_(value)
        graph.replay()
        assert torch.equal(y, torch.full_like(x, value * 4 + 3))


@pytest.mark.filterwarnings(
    "ignore:.torch.jit.script_method. is deprecated:DeprecationWarning", "ignore:The CUDA Graph is empty:UserWarning"
)
@pytest.mark.parametrize("mode", [None, "reduce-overhead"])
@pytest.mark.parametrize("case", ["cuda", "triton"])
def test_compiled_code_replays_inside_the_op(imported: Importer, case: str, mode: str | None) -> None:
    package = imported(*SOURCES[case][:2])
    twice = torch.compile(lambda x: package.scale_shift(x) * 2, mode=mode, fullgraph=True)
    for _ in range(8):
        x = torch.randn(4096, device="cuda")
        torch.testing.assert_close(twice(x), (x * 2 + 1) * 2)
    if mode is None:
        assert replayed(package) >= 1
    op = replaying(package)
    x = torch.randn(4096, device="cuda")
    assert torch.equal(op(x), x * 2 + 1)
    torch.testing.assert_close(twice(x), (x * 2 + 1) * 2)


@pytest.mark.parametrize("case", SOURCES)
def test_a_plan_runs_on_the_current_stream(imported: Importer, case: str) -> None:
    """What a stream is still to write is read after it, and other streams' work is not waited for."""
    package = imported(*SOURCES[case][:2])
    op = replaying(package)
    streams = [torch.cuda.Stream() for _ in range(2)]
    kept = [torch.zeros(4096, device="cuda") for _ in streams]
    torch.cuda.synchronize()
    found = []
    before = replayed(package)
    for value, (stream, x) in enumerate(zip(streams, kept, strict=True), start=1):
        with torch.cuda.stream(stream):
            torch.cuda._sleep(20_000_000)
            x.fill_(float(value))
            found.append(op(x))
    torch.cuda.synchronize()
    assert replayed(package) == before + 2
    assert [y.unique().tolist() for y in found] == [[3.0], [5.0]]


@pytest.mark.parametrize("case", ["cuda", "triton"])
def test_threads_replay_at_once(imported: Importer, case: str) -> None:
    package = imported(*SOURCES[case][:2])
    op = replaying(package)
    wrong: list[str] = []

    def work(n: int) -> None:
        with torch.cuda.stream(torch.cuda.Stream()):
            for _ in range(200):
                x = torch.randn(n, device="cuda")
                if not torch.equal(op(x), x * 2 + 1):
                    wrong.append(f"n = {n}")

    threads = [threading.Thread(target=work, args=(SIZES[k % 2],)) for k in range(4)]
    before = replayed(package)
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert wrong == []
    assert replayed(package) >= before + 4 * 190, "the first call of a thread may find no context"
    assert package.status()["served"]["pytorch"] == 0


@pytest.mark.parametrize(
    ("language", "source"), [("cuda", TENSOR_MAP), ("triton", DESCRIPTORS)], ids=["tensor map", "tensor descriptor"]
)
def test_a_new_thread_makes_tensor_maps_at_its_first_call(imported: Importer, language: str, source: str) -> None:
    """It has no context yet: its tensor was made elsewhere, and memory for the result comes from PyTorch's pool."""
    if torch.cuda.get_device_capability() < (9, 0):
        pytest.skip("tensor maps need compute capability 9.0")
    package = imported(language, source)
    unwatched = importlib.import_module(f"{package.__name__}._control").unwatched
    x = torch.randn(SIZES[0], device="cuda")
    expected = x * 2 + 1
    freed = torch.empty_like(x), torch.empty_like(x)
    del freed
    torch.cuda.synchronize()
    found: list[Any] = []

    def first() -> None:
        found.append((package.scale_shift(x), torch.cuda.current_device()))

    for _ in range(2):  # the first thread loads the kernel, the second one finds it loaded
        with unwatched():
            thread = threading.Thread(target=first)
            thread.start()
            thread.join()
    torch.cuda.synchronize()
    assert package.status()["served"]["pytorch"] == 0, package.status()
    assert [(torch.equal(y, expected), device) for y, device in found] == [(True, torch.cuda.current_device())] * 2


@pytest.mark.parametrize("case", ["cuda", "triton"])
def test_each_gpu_has_plans_of_its_own(imported: Importer, case: str) -> None:
    if torch.cuda.device_count() < 2:
        pytest.skip("one GPU on this machine")
    package = imported(*SOURCES[case][:2])
    op = replaying(package)
    x = torch.randn(4096, device="cuda:1")
    for _ in range(5):
        assert torch.equal(op(x), x * 2 + 1), "with the other device current"
    before = replayed(package)
    with torch.cuda.device(1):
        for _ in range(5):
            assert torch.equal(op(x), x * 2 + 1)
    assert replayed(package) >= before + 4
    x = torch.randn(4096, device="cuda:0")
    assert torch.equal(op(x), x * 2 + 1)


GRAPHED = {
    "cuda": ("cuda", dispatch.CUDA_THREE),
    "triton": ("triton", dispatch.TRITON_THREE),
    "cluster, cooperative, tensor map": ("cuda", OPTIONS_THREE),
}


@pytest.fixture
def graphed(imported: Importer) -> Callable[[str], ModuleType]:
    """Import a package of three launches whose plans are CUDA graphs, and have a plan of each size made."""

    def use(case: str) -> ModuleType:
        if "cluster" in case and torch.cuda.get_device_capability() < (9, 0):
            pytest.skip("clusters and tensor maps need compute capability 9.0")
        package = imported(*GRAPHED[case])
        replaying(package)
        return package

    return use


def graphs(package: ModuleType) -> int:
    """Replays that were a CUDA graph; no plan is refused one."""
    found = package.status()["plans"]["graphs"]
    assert (found["asked"], found["refused"]) == (True, {}), found
    return int(found["launched"])


@pytest.mark.parametrize("case", GRAPHED)
def test_three_launches_are_one_graph_with_the_addresses_of_each_call(
    graphed: Callable[[str], ModuleType], case: str
) -> None:
    package = graphed(case)
    before, held = graphs(package), []
    for _ in range(20):
        for n in SIZES:
            x = torch.randn(n, device="cuda")
            held.append((x, package.scale_shift(x)))
    assert graphs(package) == before + len(held), "comparing the plan was three calls, and the graph's first two"
    assert len({y.data_ptr() for _, y in held}) == len(held)
    for x, y in held:
        assert torch.equal(y, by_python(package, x))
        torch.testing.assert_close(y, x * 2 + 1)
    assert importlib.import_module(f"{package.__name__}.overhead").measured().graphs > 1


@pytest.mark.parametrize("case", GRAPHED)
def test_calls_queued_behind_each_other_keep_their_addresses(graphed: Callable[[str], ModuleType], case: str) -> None:
    """The graph is set anew while launches of it wait for the device; then its plan ends, and they still run."""
    package = graphed(case)
    xs = [torch.full((4096,), float(value), device="cuda") for value in range(50)]
    torch.cuda.synchronize()
    torch.cuda._sleep(50_000_000)
    before = graphs(package)
    ys = [package.scale_shift(x) for x in xs]
    assert graphs(package) == before + 50
    importlib.import_module(f"{package.__name__}._plans").table.clear()
    assert [y.unique().tolist() for y in ys] == [[2.0 * value + 1] for value in range(50)]


@pytest.mark.parametrize("case", GRAPHED)
def test_threads_share_a_graph_or_have_their_own(graphed: Callable[[str], ModuleType], case: str) -> None:
    """Two threads on the default stream, and two on streams of their own."""
    package = graphed(case)
    wrong: list[str] = []

    def work(number: int) -> None:
        stream = torch.cuda.default_stream() if number < 2 else torch.cuda.Stream()
        with torch.cuda.stream(stream):
            for _ in range(200):
                x = torch.randn(4096, device="cuda")
                if not torch.equal(package.scale_shift(x), x * 2 + 0.5 + 0.5):
                    wrong.append(f"thread {number}")

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    before = graphs(package)
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert wrong == []
    assert graphs(package) >= before + 4 * 190
    assert package.status()["served"]["pytorch"] == 0


@pytest.mark.parametrize("case", GRAPHED)
def test_streams_run_at_once_by_graphs_of_their_own(graphed: Callable[[str], ModuleType], case: str) -> None:
    """The graph of one stream, which sleeps, is not waited for by that of the other."""
    package = graphed(case)
    streams = [torch.cuda.Stream() for _ in range(2)]
    kept = [torch.zeros(4096, device="cuda") for _ in streams]
    for stream, x in zip(streams, kept, strict=True):
        with torch.cuda.stream(stream):
            for _ in range(4):
                package.scale_shift(x)
    torch.cuda.synchronize()
    before, found = graphs(package), []
    for value, (stream, x) in enumerate(zip(streams, kept, strict=True), start=1):
        with torch.cuda.stream(stream):
            if value == 1:
                torch.cuda._sleep(2_000_000_000)
            x.fill_(float(value))
            found.append(package.scale_shift(x))
    streams[1].synchronize()
    assert not streams[0].query()
    torch.cuda.synchronize()
    assert graphs(package) == before + 2
    assert [y.unique().tolist() for y in found] == [[3.0], [5.0]]


@pytest.mark.parametrize("case", GRAPHED)
def test_a_capture_gets_the_launches_and_not_the_graph(graphed: Callable[[str], ModuleType], case: str) -> None:
    package = graphed(case)
    x = torch.randn(4096, device="cuda")
    package.scale_shift(x)
    before, served = graphs(package), replayed(package)
    captured = torch.cuda.CUDAGraph()
    with torch.cuda.graph(captured):
        y = package.scale_shift(package.scale_shift(x))
    assert (graphs(package), replayed(package)) == (before, served + 2)
    for value in (1.0, 5.0):
        x.fill_(value)
        captured.replay()
        assert torch.equal(y, torch.full_like(x, value * 4 + 3))
    assert torch.equal(package.scale_shift(x), x * 2 + 1)
    assert graphs(package) == before + 1


def test_a_graph_is_built_while_another_thread_captures(graphed: Callable[[str], ModuleType]) -> None:
    package = graphed("cuda")
    x, stream, found = torch.ones(4096, device="cuda"), torch.cuda.Stream(), []
    stream.wait_stream(torch.cuda.current_stream())  # which fills x
    with torch.cuda.stream(stream):  # these keep memory for it: PyTorch may ask CUDA for none while a graph is captured
        kept = [package.scale_shift(x) for _ in range(2)]
    torch.cuda.synchronize()
    before = graphs(package)

    def work() -> None:
        with torch.cuda.stream(stream):
            found.extend(package.scale_shift(x) for _ in range(6))

    captured, z = torch.cuda.CUDAGraph(), torch.ones(4096, device="cuda")
    with torch.cuda.graph(captured):
        other = threading.Thread(target=work)
        other.start()
        other.join()
        y = package.scale_shift(z)
    captured.replay()
    torch.cuda.synchronize()
    assert graphs(package) > before, "from the fourth call on that stream"
    assert [each.unique().tolist() for each in (*kept, *found, y)] == [[3.0]] * 9


@pytest.mark.parametrize("case", ["cuda", "triton"])
def test_each_gpu_has_graphs_of_its_own(graphed: Callable[[str], ModuleType], case: str) -> None:
    if torch.cuda.device_count() < 2:
        pytest.skip("one GPU on this machine")
    package = graphed(case)
    for device in (1, 0, 1):
        with torch.cuda.device(device):
            for _ in range(10):
                x = torch.randn(4096, device="cuda")
                assert torch.equal(package.scale_shift(x), x * 2 + 0.5 + 0.5)
    assert graphs(package) >= 20
    before = graphs(package)
    x = torch.randn(4096, device="cuda:1")
    assert torch.equal(package.scale_shift(x), x * 2 + 0.5 + 0.5), "with the other device current"
    assert graphs(package) >= before


REFUSED = {
    "PyTorch computes": (
        dispatch.CUDA.replace("kernels.scale_shift[", "x = x + 0.0\n    kernels.scale_shift["),
        "run calls PyTorch's add, which a plan cannot repeat",
    ),
    "memory of an earlier call": (
        dispatch.CUDA.replace("def run", "import torch\n\nkept = torch.empty(16384, device='cuda')\n\n\ndef run")
        + "    kernels.scale_shift[1, 256](x, kept, 256)\n",
        "scale_shift takes an address that belongs to no tensor of the call",
    ),
    "launches that vary": (
        dispatch.CUDA.replace("def run(x, y):", "turns = []\n\n\ndef run(x, y):\n    turns.append(0)").replace(
            "256](x", "256 if len(turns) % 2 else 512](x"
        ),
        "two calls with the same shapes and numbers made different launches",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_a_recording_cannot_explain_has_no_plan(imported: Importer, case: str) -> None:
    source, reason = REFUSED[case]
    package = imported("cuda", source)
    for _ in range(6):
        x = torch.randn(4096, device="cuda")
        assert torch.equal(package.scale_shift(x), x * 2 + 1)
    found = package.status()["plans"]
    assert (found["refused"], found["recorded"], found["replayed"]) == ({reason: 1}, 0, 0)


def test_the_watch_finds_a_kernel_that_changes_under_its_plan(imported: Importer) -> None:
    changes = dispatch.CUDA.replace('extern "C"', '__device__ int calls = 0;\nextern "C"').replace(
        "if (i < n)", "if (i == 0) atomicAdd(&calls, 1);\n    if (i < n)"
    )
    package = imported("cuda", changes.replace("+ 1.0f;", "+ (calls > 60 ? 2.0f : 1.0f);"))
    package.watch(every=50)
    x = torch.randn(4096, device="cuda")
    with pytest.warns(RuntimeWarning, match="the watch found a wrong result"):
        results = [package.scale_shift(x) for _ in range(120)]
    status = package.status()
    assert status["plans"]["replayed"] > 40
    assert "the watch found a wrong result" in str(status["given_up"])
    torch.testing.assert_close(results[-1], x * 2 + 1)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("case", SOURCES)
def test_a_package_verifies_itself_with_plans_on(imported: Importer, case: str) -> None:
    package = imported(*SOURCES[case][:2])
    done = subprocess.run(
        [sys.executable, "-m", f"{package.__name__}.verify"],
        check=False,
        capture_output=True,
        text=True,
        timeout=500,
        env={**os.environ, "PYTHONPATH": str(Path(str(package.__file__)).parents[1])},
    )
    assert done.returncode == 0, done.stdout + done.stderr
