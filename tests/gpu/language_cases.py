"""Candidates that use what a GPU's languages offer, each with what it must compute.

tests/gpu launches them; where there is no GPU they are compiled for one and their launches are looked at.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch

from warpsmith import prompts
from warpsmith.kernels_db.job.documents import ResolvedInput, ResolvedOutput, ResolvedWorkload

Shaped = tuple[str, list[int], str]
"""Name, shape and dtype of a tensor."""


@dataclass(frozen=True)
class Case:
    """One candidate. `expected` computes the outputs from the inputs; `tolerance` is relative and absolute, 0 for equal
    bits.
    """

    name: str
    language: str
    source: str = field(repr=False)
    inputs: list[Shaped]
    outputs: list[Shaped]
    expected: Callable[..., list[Any]]
    tolerance: float = 0.0

    def workload(self) -> ResolvedWorkload:
        """What `run` is called with."""
        inputs: list[ResolvedInput] = [
            {
                "name": name,
                "shape": shape,
                "strides": None,
                "dtype": dtype,
                "dist": {},
                "value": None,
                "mutated": False,
            }
            for name, shape, dtype in self.inputs
        ]
        outputs: list[ResolvedOutput] = [
            {"name": name, "shape": shape, "dtype": dtype, "tolerance": None} for name, shape, dtype in self.outputs
        ]
        return {
            "id": self.name,
            "role": "bench",
            "axes": {},
            "inputs": inputs,
            "outputs": outputs,
            "min_bytes": 1,
            "flops": None,
        }

    def values(self, device: str) -> tuple[list[Any], list[Any]]:
        """New inputs, and outputs that hold nothing of use."""
        inputs = [torch.randn(shape, device=device).to(getattr(torch, dtype)) for _, shape, dtype in self.inputs]
        outputs = [
            torch.zeros(shape, dtype=torch.float32, device=device).sub(7).to(getattr(torch, dtype))
            for _, shape, dtype in self.outputs
        ]
        return inputs, outputs


AUTOTUNED = """
import triton
import triton.language as tl

CONFIGS = [triton.Config({"BLOCK": b}, num_warps=w) for b in (256, 1024) for w in (2, 4)]


@triton.autotune(configs=CONFIGS + [triton.Config({"BLOCK": 8192})], key=["n"], reset_to_zero=["out"])
@triton.jit
def total(x, out, n, BLOCK: tl.constexpr):
    tl.static_assert(BLOCK < 8192, "left out")
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.atomic_add(out, tl.sum(tl.load(x + i, i < n, 0.0)))


@triton.autotune(configs=CONFIGS, key=["n"], restore_value=["out"])
@triton.jit
def add(x, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(out + i, i < n) + tl.load(x + i, i < n), i < n)


def grid(meta):
    return (triton.cdiv(meta["n"], meta["BLOCK"]),)


def run(x, sums, doubled):
    n = x.numel()
    sums.zero_()
    total[grid](x, sums, n)
    doubled.fill_(1.0)
    add[grid](x, doubled, n)
"""

DEVICE_DESCRIPTORS = """
import triton
import triton.language as tl


@triton.autotune(configs=[triton.Config({"M": m, "N": 64}) for m in (16, 32)], key=["rows"])
@triton.jit
def transposed(x, out, rows, columns, M: tl.constexpr, N: tl.constexpr):
    source = tl.make_tensor_descriptor(x, [rows, columns], [columns, 1], [M, N])
    target = tl.make_tensor_descriptor(out, [columns, rows], [rows, 1], [N, M])
    i, j = tl.program_id(0) * M, tl.program_id(1) * N
    target.store([j, i], source.load([i, j]).T)


def run(x, out):
    rows, columns = x.shape
    transposed[lambda meta: (triton.cdiv(rows, meta["M"]), triton.cdiv(columns, meta["N"]))](x, out, rows, columns)
"""

HOST_DESCRIPTORS = """
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor


@triton.jit
def product(a, b, c, K, M: tl.constexpr, N: tl.constexpr, STEP: tl.constexpr):
    i, j = tl.program_id(0) * M, tl.program_id(1) * N
    total = tl.zeros((M, N), dtype=tl.float32)
    for k in range(0, K, STEP):
        total = tl.dot(a.load([i, k]), b.load([k, j]), total)
    c.store([i, j], total.to(tl.float16))


def run(a, b, c):
    rows, inner = a.shape
    columns = b.shape[1]
    left = TensorDescriptor.from_tensor(a, [64, 64])
    right = TensorDescriptor.from_tensor(b, [64, 64])
    target = TensorDescriptor(c, shape=[rows, columns], strides=[columns, 1], block_shape=[64, 64])
    product[(triton.cdiv(rows, 64), triton.cdiv(columns, 64))](left, right, target, inner, 64, 64, 64)
"""

CUB = '''
from kernels_db.runtime import cuda

kernels = cuda.compile(r"""
#include <cub/block/block_reduce.cuh>
#include <cub/warp/warp_scan.cuh>
extern "C" __global__ void __launch_bounds__(256) rows(const float* x, float* sums, int columns) {
    using Reduce = cub::BlockReduce<float, 256>;
    __shared__ typename Reduce::TempStorage storage;
    float own = 0.0f;
    for (int i = threadIdx.x; i < columns; i += 256) own += x[(long long)blockIdx.x * columns + i];
    const float sum = Reduce(storage).Sum(own);
    if (threadIdx.x == 0) sums[blockIdx.x] = sum;
}
extern "C" __global__ void scan(const float* x, float* out) {
    using Scan = cub::WarpScan<float>;
    __shared__ typename Scan::TempStorage storage;
    float value;
    Scan(storage).InclusiveSum(x[threadIdx.x], value);
    out[threadIdx.x] = value;
}
""")


def run(x, sums, first):
    kernels.rows[x.shape[0], 256](x, sums, x.shape[1])
    kernels.scan[1, 32](x, first)
'''

COOPERATIVE = '''
import torch
from kernels_db.runtime import cuda

kernels = cuda.compile(r"""
#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>
namespace cg = cooperative_groups;
extern "C" __global__ void centre(const float* x, float* partial, float* out, int n) {
    cg::grid_group grid = cg::this_grid();
    cg::thread_block block = cg::this_thread_block();
    cg::thread_block_tile<32> warp = cg::tiled_partition<32>(block);
    float own = 0.0f;
    for (int i = grid.thread_rank(); i < n; i += grid.num_threads()) own += x[i];
    own = cg::reduce(warp, own, cg::plus<float>());
    if (warp.thread_rank() == 0) atomicAdd(partial, own);
    grid.sync();
    const float mean = *partial / n;
    for (int i = grid.thread_rank(); i < n; i += grid.num_threads()) out[i] = x[i] - mean;
}
""")


def run(x, out):
    blocks = torch.cuda.get_device_properties(x.device).multi_processor_count
    partial = torch.zeros(1, dtype=torch.float32, device=x.device)
    kernels.centre.launch(blocks, 256, x, partial, out, x.numel(), cooperative=True)
'''

CLUSTERS = '''
from kernels_db.runtime import cuda

kernels = cuda.compile(r"""
#include <cooperative_groups.h>
namespace cg = cooperative_groups;
// Each block sums its part in shared memory; each then reads the sums of all blocks of its cluster.
extern "C" __global__ void shares(const float* x, float* out, int columns) {
    __shared__ float own;
    cg::cluster_group cluster = cg::this_cluster();
    const int blocks = cluster.num_blocks(), rank = cluster.block_rank();
    const float* row = x + (long long)(blockIdx.x / blocks) * columns;
    if (threadIdx.x == 0) own = 0.0f;
    __syncthreads();
    float sum = 0.0f;
    for (int i = rank * blockDim.x + threadIdx.x; i < columns; i += blocks * blockDim.x) sum += row[i];
    atomicAdd(&own, sum);
    cluster.sync();
    float total = 0.0f;
    for (int other = 0; other < blocks; ++other) total += *cluster.map_shared_rank(&own, other);
    cluster.sync();
    if (threadIdx.x == 0 && rank == 0) out[blockIdx.x / blocks] = total;
}
""")


def run(x, four, sixteen):
    rows, columns = x.shape
    kernels.shares.launch(4 * rows, 128, x, four, columns, cluster=4)
    kernels.shares.launch((16 * rows, 1), 128, x, sixteen, columns, cluster=(16, 1, 1))
'''

TENSOR_MAPS = '''
from kernels_db.runtime import cuda

kernels = cuda.compile(r"""
#include <cuda_bf16.h>
__device__ void load(void* to, const CUtensorMap* map, int x, int y, unsigned long long* barrier, int bytes) {
    const unsigned at = __cvta_generic_to_shared(barrier), target = __cvta_generic_to_shared(to);
    if (threadIdx.x == 0) {
        asm volatile("mbarrier.init.shared.b64 [%0], 1;" :: "r"(at));
        asm volatile("fence.mbarrier_init.release.cluster;");
        asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;" :: "r"(at), "r"(bytes));
        asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes "
                     "[%0], [%1, {%3, %4}], [%2];" :: "r"(target), "l"(map), "r"(at), "r"(x), "r"(y) : "memory");
    }
    __syncthreads();
    asm volatile("{ .reg .pred p; L_%=: mbarrier.try_wait.parity.shared.b64 p, [%0], 0; @!p bra L_%=; }"
                 :: "r"(at) : "memory");
}
extern "C" __global__ void tiles(const __grid_constant__ CUtensorMap map, __nv_bfloat16* out, int columns) {
    __shared__ alignas(1024) __nv_bfloat16 tile[16 * 64];
    __shared__ alignas(8) unsigned long long barrier;
    load(tile, &map, blockIdx.x * 64, blockIdx.y * 16, &barrier, sizeof tile);
    for (int i = threadIdx.x; i < 16 * 64; i += blockDim.x) {
        // The swizzle over 128 bytes exchanges the eight 16-byte parts of a row by the row's number.
        const int row = i / 64, column = i % 64, part = (column / 8) ^ (row % 8);
        const long long at = (long long)(blockIdx.y * 16 + row) * columns + blockIdx.x * 64 + column;
        out[at] = tile[row * 64 + part * 8 + column % 8];
    }
}
extern "C" __global__ void bytes(const __grid_constant__ CUtensorMap map, unsigned char* out) {
    __shared__ alignas(128) unsigned char tile[8 * 16];
    __shared__ alignas(8) unsigned long long barrier;
    load(tile, &map, 16, 8, &barrier, sizeof tile);
    out[threadIdx.x] = tile[threadIdx.x];
}
""")


def run(x, small, out, part):
    rows, columns = x.shape
    tiles = cuda.tensor_map(x, (16, 64), swizzle=128, l2_promotion=128)
    kernels.tiles[(columns // 64, rows // 16), 128](tiles, out, columns)
    kernels.bytes[1, 128](cuda.tensor_map(small, (8, 16)), part)
'''

DYNAMIC_SHARED = '''
from kernels_db.runtime import cuda

kernels = cuda.compile(r"""
extern "C" __global__ void reverse(const float* x, float* out, int n) {
    extern __shared__ float tile[];
    for (int i = threadIdx.x; i < n; i += blockDim.x) tile[i] = x[(long long)blockIdx.x * n + i];
    __syncthreads();
    for (int i = threadIdx.x; i < n; i += blockDim.x) out[(long long)blockIdx.x * n + i] = tile[n - 1 - i];
}
""")


def run(x, out):
    rows, n = x.shape
    kernels.reverse.launch(rows, 512, x, out, n, shared_bytes=4 * n)
'''

NARROW = '''
from kernels_db.runtime import cuda

kernels = cuda.compile(r"""
#include <cuda_bf16.h>
#include <cuda_fp8.h>
#include <cuda_fp16.h>
extern "C" __global__ void convert(const float* x, __nv_fp8_e4m3* a, __nv_fp8_e5m2* b, __nv_bfloat16* c, __half* d,
                                   int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    a[i] = __nv_fp8_e4m3(x[i]);
    b[i] = __nv_fp8_e5m2(x[i]);
    c[i] = __float2bfloat16(x[i]);
    d[i] = __float2half(x[i]);
}
""")


def run(x, a, b, c, d):
    n = x.numel()
    kernels.convert[(n + 255) // 256, 256](x, a, b, c, d, n)
'''

BARRIERS = '''
from kernels_db.runtime import cuda

kernels = cuda.compile(r"""
#include <cuda/barrier>
#include <cuda/pipeline>
#include <cuda/std/array>
#include <cooperative_groups.h>
namespace cg = cooperative_groups;
using Barrier = cuda::barrier<cuda::thread_scope_block>;
extern "C" __global__ void copied(const float* x, float* out) {
    __shared__ alignas(16) float tile[256];
    __shared__ Barrier barrier;
    cg::thread_block block = cg::this_thread_block();
    if (block.thread_rank() == 0) init(&barrier, block.size());
    block.sync();
    cuda::memcpy_async(block, tile, x + blockIdx.x * 256, cuda::aligned_size_t<16>(sizeof tile), barrier);
    barrier.arrive_and_wait();
    out[blockIdx.x * 256 + threadIdx.x] = tile[255 - threadIdx.x];
}
extern "C" __global__ void staged(const float* x, float* out, int tiles) {
    constexpr int stages = 2;
    __shared__ alignas(16) float tile[stages][128];
    __shared__ cuda::pipeline_shared_state<cuda::thread_scope_block, stages> state;
    cg::thread_block block = cg::this_thread_block();
    auto pipeline = cuda::make_pipeline(block, &state);
    float total = 0.0f;
    for (int produced = 0, consumed = 0; consumed < tiles; ++consumed) {
        for (; produced < tiles && produced < consumed + stages; ++produced) {
            pipeline.producer_acquire();
            cuda::memcpy_async(block, tile[produced % stages], x + produced * 128,
                               cuda::aligned_size_t<16>(sizeof tile[0]), pipeline);
            pipeline.producer_commit();
        }
        pipeline.consumer_wait();
        total += tile[consumed % stages][threadIdx.x];
        pipeline.consumer_release();
    }
    out[threadIdx.x] = total;
}
""")


def run(x, reversed_tiles, total):
    kernels.copied[x.numel() // 256, 256](x, reversed_tiles)
    kernels.staged[1, 128](x, total, x.numel() // 128)
'''

TENSOR_CORES = '''
from kernels_db.runtime import cuda

kernels = cuda.compile(r"""
#include <mma.h>
#include <cuda_bf16.h>
using namespace nvcuda;
extern "C" __global__ void product(const __nv_bfloat16* a, const __nv_bfloat16* b, float* c, int n, int k) {
    wmma::fragment<wmma::matrix_a, 16, 16, 16, __nv_bfloat16, wmma::row_major> left;
    wmma::fragment<wmma::matrix_b, 16, 16, 16, __nv_bfloat16, wmma::row_major> right;
    wmma::fragment<wmma::accumulator, 16, 16, 16, float> total;
    wmma::fill_fragment(total, 0.0f);
    for (int i = 0; i < k; i += 16) {
        wmma::load_matrix_sync(left, a + blockIdx.y * 16 * k + i, k);
        wmma::load_matrix_sync(right, b + i * n + blockIdx.x * 16, n);
        wmma::mma_sync(total, left, right, total);
    }
    wmma::store_matrix_sync(c + blockIdx.y * 16 * n + blockIdx.x * 16, total, n, wmma::mem_row_major);
}
""", flags=("--std=c++17", "--restrict"))


def run(a, b, c):
    rows, inner = a.shape
    columns = b.shape[1]
    kernels.product[(columns // 16, rows // 16), 32](a, b, c, columns, inner)
'''


def _narrow(x: Any) -> list[Any]:
    return [x.to(kind) for kind in (torch.float8_e4m3fn, torch.float8_e5m2, torch.bfloat16, torch.float16)]


def _barriers(x: Any) -> list[Any]:
    return [x.view(-1, 256).flip(1).reshape(-1), x.view(-1, 128).sum(0)]


GLUON_ROWS = """
import triton
import triton.language as tl
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import async_copy

TUNE = {"ROWS": [2, 4], "WARPS": [4, 8]}
ROWS = 4
WARPS = 4


@gluon.jit
def fetch(smem, pointers, mask):
    async_copy.async_copy_global_to_shared(smem, pointers, mask=mask)
    async_copy.commit_group()


@gluon.jit
def centred(x, out, rows, columns, R: gl.constexpr, N: gl.constexpr, layout: gl.constexpr):
    r = gl.program_id(0) * R + gl.arange(0, R, gl.SliceLayout(1, layout))
    c = gl.arange(0, N, gl.SliceLayout(0, layout))
    at = r.to(gl.int64)[:, None] * columns + c[None, :]
    inside = (r[:, None] < rows) & (c[None, :] < columns)
    smem = gl.allocate_shared_memory(gl.float32, [R, N], gl.SwizzledSharedLayout(1, 1, 1, [1, 0]))
    fetch(smem, x + at, inside)
    async_copy.wait_group(0)
    value = gl.where(inside, smem.load(layout), 0.0)
    mean = gl.sum(value, axis=1) / columns
    value = gl.where(inside, value - mean[:, None], 0.0)
    spread = gl.sqrt(gl.sum(value * value, axis=1) / columns)
    value = gl.maximum(value / spread[:, None], -1.0, propagate_nan=tl.PropagateNan.ALL)
    gl.store(out + at, value, mask=inside)


def run(x, out):
    rows, columns = x.shape
    layout = gl.BlockedLayout([1, 4], [1, 32], [1, WARPS], [1, 0])
    width = triton.next_power_of_2(columns)
    centred[(triton.cdiv(rows, ROWS),)](x, out, rows, columns, R=ROWS, N=width, layout=layout, num_warps=WARPS)
"""

GLUON_SPECIALISED = """
import triton
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import mbarrier, tma
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

TILE = gl.constexpr(64)
LAYOUT = gl.constexpr(gl.BlockedLayout([1, 8], [4, 8], [4, 1], [1, 0]))


@gluon.jit
def produce(x_desc, tiles, full, empty, steps, STAGES: gl.constexpr):
    for i in range(steps):
        slot = i % STAGES
        mbarrier.wait(empty.index(slot), (i // STAGES & 1) ^ 1)
        mbarrier.expect(full.index(slot), x_desc.block_type.nbytes)
        tma.async_copy_global_to_shared(x_desc, [i * TILE, 0], full.index(slot), tiles.index(slot))


@gluon.jit
def consume(out, tiles, full, empty, steps, STAGES: gl.constexpr):
    total = gl.zeros([TILE, TILE], gl.float32, LAYOUT)
    for i in range(steps):
        slot = i % STAGES
        mbarrier.wait(full.index(slot), i // STAGES & 1)
        total += tiles.index(slot).load(LAYOUT).to(gl.float32)
        mbarrier.arrive(empty.index(slot), count=1)
    r = gl.arange(0, TILE, gl.SliceLayout(1, LAYOUT))
    c = gl.arange(0, TILE, gl.SliceLayout(0, LAYOUT))
    gl.store(out + r[:, None] * TILE + c[None, :], total)


@gluon.jit
def folded(x_desc, out, steps, STAGES: gl.constexpr):
    tiles = gl.allocate_shared_memory(x_desc.dtype, [STAGES, TILE, TILE], x_desc.layout)
    full = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    empty = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    for s in gl.static_range(STAGES):
        mbarrier.init(full.index(s), count=1)
        mbarrier.init(empty.index(s), count=1)
    gl.warp_specialize(
        [
            (consume, (out, tiles, full, empty, steps, STAGES)),
            (produce, (x_desc, tiles, full, empty, steps, STAGES)),
        ],
        [1],
        [24],
    )


def run(x, out):
    layout = gl.NVMMASharedLayout.get_default_for([64, 64], gl.float16)
    folded[(1,)](TensorDescriptor.from_tensor(x, [64, 64], layout), out, x.shape[0] // 64, STAGES=3, num_warps=4)
"""

GLUON_TUNED = """
import triton
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.language.extra import libdevice

CONFIGS = [triton.Config({"BLOCK": b}, num_warps=w) for b in (256, 1024) for w in (2, 4)]


@gluon.jit
def added(a, b):
    return a + b


@triton.autotune(configs=CONFIGS, key=["n"], reset_to_zero=["out"])
@gluon.jit
def total(x, out, n, BLOCK: gl.constexpr, num_warps: gl.constexpr):
    layout: gl.constexpr = gl.BlockedLayout([1], [32], [num_warps], [0])
    i = gl.program_id(0) * BLOCK + gl.arange(0, BLOCK, layout)
    v = libdevice.tanh(gl.load(x + i, mask=i < n, other=0.0))
    gl.atomic_add(out, gl.reduce(v, 0, added))


def run(x, out):
    n = x.numel()
    out.zero_()
    total[lambda meta: (triton.cdiv(n, meta["BLOCK"]),)](x, out, n)
"""

CUTE_PARTS = """
import cutlass
import cutlass.cute as cute
import cutlass.memory as memory
import torch
from kernels_db.runtime import cutedsl

TUNE = {"THREADS": [64, 128]}
THREADS = 128


@cute.jit
def folded(value):
    return cute.arch.warp_reduction_sum(value)


@cute.kernel
def parts(x: cute.Tensor, scratch: cute.Tensor, scale: cutlass.Float32):
    thread, _, _ = cute.arch.thread_idx()
    block, _, _ = cute.arch.block_idx()
    warp = cute.arch.warp_idx()
    smem = memory.SmemAllocator()
    held = smem.allocate_tensor(cutlass.Float32, cute.make_layout(THREADS // 32))
    total = cutlass.Float32(0.0)
    for i in cutlass.range(thread, cute.size(x, mode=[1]), THREADS):
        total += x[block, i].to(cutlass.Float32) * scale
    total = folded(total)
    if cute.arch.lane_idx() == 0:
        held[warp] = total
    cute.arch.sync_threads()
    if thread == 0:
        whole = cutlass.Float32(0.0)
        for i in cutlass.range_constexpr(THREADS // 32):
            whole += held[i]
        scratch[block] = whole


@cute.kernel
def joined(scratch: cute.Tensor, out: cute.Tensor, rows: cutlass.Constexpr):
    thread, _, _ = cute.arch.thread_idx()
    total = cutlass.Float32(0.0)
    for i in cutlass.range(thread, rows, 32):
        total += scratch[i]
    total = folded(total)
    if thread == 0:
        out[0] = total


@cute.jit
def launch_both(x: cute.Tensor, scratch: cute.Tensor, out: cute.Tensor, scale: cutlass.Float32):
    parts(x, scratch, scale).launch(grid=[x.shape[0], 1, 1], block=[THREADS, 1, 1], cluster=[2, 1, 1])
    joined(scratch, out, x.shape[0]).launch(grid=[1, 1, 1], block=[32, 1, 1])


launch = cutedsl.compile(launch_both)


def run(x, out):
    scratch = torch.empty(x.shape[0], dtype=torch.float32, device=x.device)
    launch(x, scratch, out, 0.5)
"""


def _centred(x: Any) -> list[Any]:
    value = x - x.mean(1, keepdim=True)
    return [(value / value.pow(2).mean(1, keepdim=True).sqrt()).clamp(min=-1.0)]


TILELANG_ROWS = """
import torch
import tilelang.language as T
from kernels_db.runtime import tilelang

ROWS, COLUMNS = T.dynamic("rows"), T.dynamic("columns")
PART = 256


@T.macro
def scaled(value, by):
    return value * by


@T.prim_func
def statistics(x: T.Tensor((ROWS, COLUMNS), "float16"), kept: T.Tensor((2, ROWS), "float32")):
    with T.Kernel(ROWS, threads=128) as row:
        part = T.alloc_fragment((1, PART), "float32")
        one = T.alloc_fragment((1,), "float32")
        most = T.alloc_fragment((1,), "float32")
        total = T.alloc_fragment((1,), "float32")
        T.fill(most, -T.infinity("float32"))
        T.clear(total)
        for step in T.serial(T.ceildiv(COLUMNS, PART)):
            for i, j in T.Parallel(1, PART):
                if step * PART + j < COLUMNS:
                    part[i, j] = T.cast(x[row, step * PART + j], "float32")
                else:
                    part[i, j] = -T.infinity("float32")
            T.reduce_max(part, most, dim=1, clear=False)
        for step in T.serial(T.ceildiv(COLUMNS, PART)):
            for i, j in T.Parallel(1, PART):
                if step * PART + j < COLUMNS:
                    part[i, j] = T.exp(T.cast(x[row, step * PART + j], "float32") - most[0])
                else:
                    part[i, j] = 0.0
            T.reduce_sum(part, one, dim=1)
            total[0] += one[0]
        kept[0, row] = most[0]
        kept[1, row] = total[0]


@T.prim_func
def shares(
    x: T.Tensor((ROWS, COLUMNS), "float16"),
    kept: T.Tensor((2, ROWS), "float32"),
    out: T.Tensor((ROWS, COLUMNS), "float32"),
    by: T.float32,
    columns: T.int32,
):
    with T.Kernel(T.ceildiv(columns, PART), ROWS, threads=128) as (part, row):
        for j in T.Parallel(PART):
            place = part * PART + j
            if place < columns:
                value = T.exp(T.cast(x[row, place], "float32") - kept[0, row]) / kept[1, row]
                out[row, place] = scaled(value, by)


first = tilelang.compile(statistics)
second = tilelang.compile(shares)


def run(x, out):
    kept = torch.empty((2, x.shape[0]), device=x.device, dtype=torch.float32)
    first(x, kept)
    second(x, kept, out, 0.5, x.shape[1])
"""
TILELANG_THREADS = """
import tilelang.language as T
from kernels_db.runtime import tilelang

N = T.dynamic("n")
THREADS = 128
BLOCKS = 32


@T.prim_func
def cleared(out: T.Tensor((1,), "float32")):
    with T.Kernel(1, threads=THREADS) as block:
        if T.get_thread_binding(0) == 0:
            out[0] = 0.0


@T.prim_func
def summed(x: T.Tensor((N,), "float32"), out: T.Tensor((1,), "float32")):
    with T.Kernel(BLOCKS, threads=THREADS) as block:
        total = T.alloc_var("float32")
        total = 0.0
        thread = T.get_thread_binding(0)
        for step in T.serial(T.ceildiv(N, BLOCKS * THREADS)):
            place = (step * BLOCKS + block) * THREADS + thread
            if place < N:
                total = total + T.tanh(x[place])
        lanes = T.warp_reduce_sum(total)
        if thread % 32 == 0:
            T.atomic_add(out[0], lanes)


clear = tilelang.compile(cleared)
launch = tilelang.compile(summed)


def run(x, out):
    clear(out)
    launch(x.view(-1), out)
"""
CASES = [
    Case(
        "autotuned",
        "triton",
        AUTOTUNED,
        [("x", [50_000], "float32")],
        [("sums", [1], "float32"), ("doubled", [50_000], "float32")],
        lambda x: [x.sum().view(1), x + 1],
        1e-2,  # the sum is near zero, of 50,000 terms in any order
    ),
    Case(
        "device-side descriptors",
        "triton",
        DEVICE_DESCRIPTORS,
        [("x", [112, 192], "float32")],
        [("out", [192, 112], "float32")],
        lambda x: [x.T],
    ),
    Case(
        "host-side descriptors",
        "triton",
        HOST_DESCRIPTORS,
        [("a", [128, 192], "float16"), ("b", [192, 64], "float16")],
        [("c", [128, 64], "float16")],
        lambda a, b: [(a.float() @ b.float()).half()],
        5e-3,
    ),
    Case(
        "cub",
        "cuda",
        CUB,
        [("x", [37, 1000], "float32")],
        [("sums", [37], "float32"), ("first", [32], "float32")],
        lambda x: [x.sum(1), x.view(-1)[:32].cumsum(0)],
        1e-4,
    ),
    Case(
        "cooperative groups",
        "cuda",
        COOPERATIVE,
        [("x", [100_001], "float32")],
        [("out", [100_001], "float32")],
        lambda x: [x - x.mean()],
        1e-4,
    ),
    Case(
        "clusters",
        "cuda",
        CLUSTERS,
        [("x", [3, 5000], "float32")],
        [("four", [3], "float32"), ("sixteen", [3], "float32")],
        lambda x: [x.sum(1), x.sum(1)],
        1e-3,
    ),
    Case(
        "tensor maps",
        "cuda",
        TENSOR_MAPS,
        [("x", [64, 256], "bfloat16"), ("small", [64, 64], "float8_e4m3fn")],
        [("out", [64, 256], "bfloat16"), ("part", [8, 16], "uint8")],
        lambda x, small: [x, small.view(torch.uint8)[8:16, 16:32]],
    ),
    Case(
        "dynamic shared memory",
        "cuda",
        DYNAMIC_SHARED,
        [("x", [3, 51_200], "float32")],
        [("out", [3, 51_200], "float32")],
        lambda x: [x.flip(1)],
    ),
    Case(
        "narrow floats",
        "cuda",
        NARROW,
        [("x", [10_007], "float32")],
        [
            ("a", [10_007], "float8_e4m3fn"),
            ("b", [10_007], "float8_e5m2"),
            ("c", [10_007], "bfloat16"),
            ("d", [10_007], "float16"),
        ],
        _narrow,
    ),
    Case(
        "barriers",
        "cuda",
        BARRIERS,
        [("x", [2048], "float32")],
        [("reversed_tiles", [2048], "float32"), ("total", [128], "float32")],
        _barriers,
        1e-5,
    ),
    Case(
        "tensor cores",
        "cuda",
        TENSOR_CORES,
        [("a", [32, 64], "bfloat16"), ("b", [64, 48], "bfloat16")],
        [("c", [32, 48], "float32")],
        lambda a, b: [a.float() @ b.float()],
        1e-3,
    ),
    Case(
        "bulk copies and a cluster's exchange",
        "cuda",
        prompts.example("cuda_bulk"),
        [("x", [37, 1000], "float32")],
        [("y", [37, 1000], "float32")],
        lambda x: [x - x.mean(1, keepdim=True)],
        1e-5,
    ),
    Case(
        "Gluon's layouts and asynchronous copies",
        "gluon",
        GLUON_ROWS,
        [("x", [37, 1000], "float32")],
        [("out", [37, 1000], "float32")],
        _centred,
        1e-4,
    ),
    Case(
        "Gluon's products by TMA",
        "gluon",
        prompts.example("gluon_product"),
        [("x", [200, 328], "bfloat16"), ("weight", [136, 328], "bfloat16")],
        [("out", [200, 136], "bfloat16")],
        lambda x, weight: [x.float() @ weight.float().T],
        2e-1,
    ),
    Case(
        "Gluon's warp specialisation",
        "gluon",
        GLUON_SPECIALISED,
        [("x", [640, 64], "float16")],
        [("out", [64, 64], "float32")],
        lambda x: [x.float().view(10, 64, 64).sum(0)],
        1e-3,
    ),
    Case(
        "Gluon's kernels tuned",
        "gluon",
        GLUON_TUNED,
        [("x", [10_007], "float32")],
        [("out", [1], "float32")],
        lambda x: [x.tanh().sum().view(1)],
        1e-2,
    ),
    Case(
        "CuTe's products by TMA",
        "cute",
        prompts.example("cute_product"),
        [("x", [200, 328], "bfloat16"), ("w", [136, 328], "bfloat16")],
        [("out", [200, 136], "bfloat16")],
        lambda x, w: [x.float() @ w.float().T],
        2e-1,
    ),
    Case(
        "CuTe's two launches, a cluster and a number",
        "cute",
        CUTE_PARTS,
        [("x", [38, 1001], "float16")],
        [("out", [1], "float32")],
        lambda x: [(0.5 * x.float()).sum().view(1)],
        1e-2,
    ),
    Case(
        "TileLang's products by TMA",
        "tilelang",
        prompts.example("tilelang_product"),
        [("x", [200, 328], "bfloat16"), ("w", [136, 328], "bfloat16")],
        [("out", [200, 136], "bfloat16")],
        lambda x, w: [x.float() @ w.float().T],
        2e-1,
    ),
    Case(
        "TileLang's products of sizes that TMA does not take",
        "tilelang",
        prompts.example("tilelang_product"),
        [("x", [201, 329], "bfloat16"), ("w", [137, 329], "bfloat16")],
        [("out", [201, 137], "bfloat16")],
        lambda x, w: [x.float() @ w.float().T],
        2e-1,
    ),
    Case(
        "TileLang's reductions, numbers and two launches",
        "tilelang",
        TILELANG_ROWS,
        [("x", [38, 1001], "float16")],
        [("out", [38, 1001], "float32")],
        lambda x: [0.5 * x.float().softmax(-1)],
        1e-4,
    ),
    Case(
        "TileLang's atomics and values of one thread",
        "tilelang",
        TILELANG_THREADS,
        [("x", [38, 1001], "float32")],
        [("out", [1], "float32")],
        lambda x: [x.tanh().sum().view(1)],
        1e-2,
    ),
]
