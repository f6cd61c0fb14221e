"""The CUDA runtime on a real GPU: launches, their options, and the arguments that it refuses."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest
import torch

from tests import REPOSITORY
from tests.gpu.building import compiled
from warpsmith.kernels_db.runtime import cuda
from warpsmith.kernels_db.runtime.cache import CACHE_VARIABLE
from warpsmith.kernels_db.runtime.errors import LaunchError
from warpsmith.workers.gate import kernel_sources

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA GPU on this machine")

SOURCE = r"""
#include <cooperative_groups.h>
#include <cuda_bf16.h>
namespace cg = cooperative_groups;

extern "C" __global__ void put(double* out, signed char a, unsigned short b, int c, unsigned long long d, float e,
                               double f, bool g, const void* h, const __nv_bfloat16* i) {
    out[0] = a; out[1] = b; out[2] = c; out[3] = d; out[4] = e; out[5] = f; out[6] = g;
    out[7] = h == nullptr; out[8] = float(i[0]);
}
extern "C" __global__ void reverse(float* x, int n) {
    extern __shared__ float tile[];
    for (int i = threadIdx.x; i < n; i += blockDim.x) tile[i] = x[i];
    __syncthreads();
    for (int i = threadIdx.x; i < n; i += blockDim.x) x[i] = tile[n - 1 - i];
}
extern "C" __global__ void ranks(int* out) {
    cg::cluster_group cluster = cg::this_cluster();
    if (threadIdx.x == 0) out[blockIdx.x] = cluster.block_rank() + 10 * cluster.num_blocks();
}
extern "C" __global__ void meet(int* count, int* seen) {
    if (threadIdx.x == 0) atomicAdd(count, 1);
    cg::this_grid().sync();
    if (threadIdx.x == 0) seen[blockIdx.x] = *count;
}
extern "C" __global__ void load_tile(const __grid_constant__ CUtensorMap map, float* out) {
    __shared__ alignas(128) float box[8 * 8];
    __shared__ alignas(8) unsigned long long barrier;
    const unsigned at = __cvta_generic_to_shared(&barrier), to = __cvta_generic_to_shared(box);
    if (threadIdx.x == 0) {
        asm volatile("mbarrier.init.shared.b64 [%0], 1;" :: "r"(at));
        asm volatile("fence.mbarrier_init.release.cluster;");
        asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], 256;" :: "r"(at));
        asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes "
                     "[%0], [%1, {8, 16}], [%2];" :: "r"(to), "l"(&map), "r"(at) : "memory");
    }
    __syncthreads();
    asm volatile("{ .reg .pred p; L: mbarrier.try_wait.parity.shared.b64 p, [%0], 0; @!p bra L; }"
                 :: "r"(at) : "memory");
    out[threadIdx.x] = box[threadIdx.x];
}
"""


@pytest.fixture
def kernels(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> cuda.Kernels:
    """The kernels above, built in a cache that the whole run shares."""
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path_factory.getbasetemp() / "cache"))
    return compiled(SOURCE)


def needs(major: int) -> None:
    """Skip on a GPU below compute capability `major`."""
    found = torch.cuda.get_device_capability()
    if found[0] < major:
        pytest.skip(f"needs compute capability {major}.0, this GPU has {found[0]}.{found[1]}")


def test_every_kind_of_parameter_arrives_as_it_was_passed(kernels: cuda.Kernels) -> None:
    out = torch.zeros(9, dtype=torch.float64, device="cuda")
    half = torch.full((1,), 1.5, dtype=torch.bfloat16, device="cuda")
    kernels.put[1, 1](out, -128, 65535, -(2**31), 2**53, 0.5, 1e-300, True, None, half)
    assert out.tolist() == [-128, 65535, -(2**31), 2**53, 0.5, 1e-300, 1, 1, 1.5]


def test_a_launch_follows_the_current_stream(kernels: cuda.Kernels) -> None:
    x = torch.zeros(1024, device="cuda")
    expected = torch.arange(1023, -1, -1, dtype=torch.float32, device="cuda")
    source = torch.arange(1024, dtype=torch.float32, device="cuda")
    side = torch.cuda.Stream()
    torch.cuda.synchronize()
    with torch.cuda.stream(side):
        torch.cuda._sleep(20_000_000)
        x.copy_(source)
        kernels.reverse.launch(1, 256, x, 1024, shared_bytes=4096)
    side.synchronize()
    assert torch.equal(x, expected)


def test_more_than_the_default_shared_memory_is_opted_in(kernels: cuda.Kernels) -> None:
    for n in (20_000, 16_000, 24_000):
        x = torch.arange(n, dtype=torch.float32, device="cuda")
        kernels.reverse.launch(1, 1024, x, n, shared_bytes=4 * n)
        assert torch.equal(x, torch.arange(n - 1, -1, -1, dtype=torch.float32, device="cuda"))
    with pytest.raises(LaunchError, match=r"launch of 'reverse' .*shared memory: found 1048576 bytes"):
        kernels.reverse.launch(1, 1024, x, n, shared_bytes=1 << 20)


def test_a_cluster_launch_groups_its_blocks(kernels: cuda.Kernels) -> None:
    needs(9)
    out = torch.zeros(8, dtype=torch.int32, device="cuda")
    kernels.ranks.launch(8, 32, out, cluster=2)
    assert out.tolist() == [20, 21] * 4
    with pytest.raises(ValueError, match=r"found grid \(7, 1, 1\), expected a multiple of cluster \(2, 1, 1\)"):
        kernels.ranks.launch(7, 32, out, cluster=2)


def test_a_cooperative_launch_synchronises_the_grid(kernels: cuda.Kernels) -> None:
    blocks = torch.cuda.get_device_properties(0).multi_processor_count
    count, seen = (torch.zeros(n, dtype=torch.int32, device="cuda") for n in (1, blocks))
    kernels.meet.launch(blocks, 64, count, seen, cooperative=True)
    assert seen.tolist() == [blocks] * blocks


def test_a_tensor_map_moves_a_tile(kernels: cuda.Kernels) -> None:
    needs(9)
    x = torch.arange(64 * 32, dtype=torch.float32, device="cuda").view(64, 32)
    out = torch.zeros(64, device="cuda")
    kernels.load_tile[1, 64](cuda.tensor_map(x, (8, 8)), out)
    assert torch.equal(out.view(8, 8), x[16:24, 8:16])


def test_a_launch_that_does_not_fit_says_why(kernels: cuda.Kernels) -> None:
    x = torch.zeros(4, device="cuda")
    with pytest.raises(TypeError, match=r"parameter 'x' .*found a tensor on cpu, expected one on cuda"):
        kernels.reverse[1, 1](torch.zeros(4), 4)
    with pytest.raises(TypeError, match=r"reverse takes 2 arguments \(x, n\), found 1"):
        kernels.reverse[1, 1](x)
    with pytest.raises(OverflowError, match="parameter 'n'"):
        kernels.reverse[1, 1](x, 2**31)
    with pytest.raises(ValueError, match=r"found grid 0, expected one to three positive ints"):
        kernels.reverse[0, 1](x, 4)
    with pytest.raises(AttributeError, match="no kernel named 'missing': expected one of load_tile, meet"):
        kernels.missing[1, 1](x)


@pytest.mark.parametrize("path", ["prompts/examples/cuda.py", "prompts/examples/triton.py"])
def test_the_examples_compute_what_torch_does(path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path))
    for entry in kernel_sources((REPOSITORY / path).read_text()):
        compiled(entry.source)
    specification = importlib.util.spec_from_file_location("candidate", REPOSITORY / path)
    assert specification is not None
    assert specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    for n in (1, 4, 1023, 1_000_003):
        x, y = torch.randn(n, device="cuda"), torch.randn(n, device="cuda")
        x[n // 2] = torch.nan
        out = torch.full_like(x, -1.0)
        module.run(x, y, out)
        torch.testing.assert_close(out, torch.relu(x + y), rtol=0, atol=0, equal_nan=True)
