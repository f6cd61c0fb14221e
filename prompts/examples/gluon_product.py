import triton
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared,
    mbarrier,
    tma,
    warpgroup_mma,
    warpgroup_mma_wait,
)
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor


@gluon.jit
def load(i, x_desc, w_desc, m, n, steps, xs, ws, full, BK: gl.constexpr, STAGES: gl.constexpr):
    slot, there = i % STAGES, i < steps  # without `there` a copy that nobody waits for would outlive the block
    bar = full.index(slot)
    mbarrier.expect(bar, x_desc.block_type.nbytes + w_desc.block_type.nbytes, pred=there)
    tma.async_copy_global_to_shared(x_desc, [m, i * BK], bar, xs.index(slot), pred=there)
    tma.async_copy_global_to_shared(w_desc, [n, i * BK], bar, ws.index(slot), pred=there)


@gluon.jit
def product(x_desc, w_desc, out_desc, k, STAGES: gl.constexpr, num_warps: gl.constexpr):
    BM: gl.constexpr = x_desc.block_type.shape[0]
    BN: gl.constexpr = w_desc.block_type.shape[0]
    BK: gl.constexpr = x_desc.block_type.shape[1]
    m, n = gl.program_id(0) * BM, gl.program_id(1) * BN
    xs = gl.allocate_shared_memory(x_desc.dtype, [STAGES, BM, BK], x_desc.layout)
    ws = gl.allocate_shared_memory(w_desc.dtype, [STAGES, BN, BK], w_desc.layout)
    full = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    for s in gl.static_range(STAGES):
        mbarrier.init(full.index(s), count=1)
    steps = gl.cdiv(k, BK)
    for s in gl.static_range(STAGES - 1):
        load(s, x_desc, w_desc, m, n, steps, xs, ws, full, BK, STAGES)
    layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [num_warps, 1], [16, BN, 16])
    acc = gl.zeros([BM, BN], gl.float32, layout)
    for i in range(steps):
        slot = i % STAGES
        mbarrier.wait(full.index(slot), i // STAGES & 1)  # the phase of a barrier flips with each use
        acc = warpgroup_mma(xs.index(slot), ws.index(slot).permute((1, 0)), acc, is_async=True)
        acc = warpgroup_mma_wait(num_outstanding=1, deps=[acc])  # the product before is done: its slot is free
        load(i + STAGES - 1, x_desc, w_desc, m, n, steps, xs, ws, full, BK, STAGES)
    acc = warpgroup_mma_wait(num_outstanding=0, deps=[acc])
    for s in gl.static_range(STAGES):
        mbarrier.invalidate(full.index(s))
    tile = gl.allocate_shared_memory(out_desc.dtype, [BM, BN], out_desc.layout)
    tile.store(acc.to(out_desc.dtype))
    fence_async_shared()  # TMA reads shared memory by another way than stores write it
    tma.async_copy_shared_to_global(out_desc, [m, n], tile)
    tma.store_wait(pendings=0)


def described(tensor, rows, columns):
    layout = gl.NVMMASharedLayout.get_default_for([rows, columns], gl.bfloat16)
    return TensorDescriptor.from_tensor(tensor, [rows, columns], layout)


def run(x, weight, out):  # out[m, n] = x[m, k] @ weight[n, k].T in bfloat16; rows start at multiples of 16 bytes
    m, k = x.shape
    n = weight.shape[0]
    grid = (triton.cdiv(m, 128), triton.cdiv(n, 128))
    product[grid](described(x, 128, 64), described(weight, 128, 64), described(out, 128, 128), k, STAGES=4, num_warps=4)
