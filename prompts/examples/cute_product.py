"""out = x @ w.T for sm_90, bfloat16 with float32 sums: TMA fills a ring in shared memory, a warp group multiplies."""

import cutlass
import cutlass.cute as cute
import cutlass.pipeline as pipeline
import cutlass.memory as memory
from cutlass.cute.nvgpu import OperandMajorMode, cpasync, warpgroup
from cutlass.utils import hopper_helpers
from kernels_db.runtime import cutedsl

TILE = (128, 128, 64)  # rows of x, rows of w, depth of one step
STAGES = 4
THREADS = 128  # one warp group


@cute.kernel
def product(
    load_x: cute.CopyAtom,
    gx: cute.Tensor,
    load_w: cute.CopyAtom,
    gw: cute.Tensor,
    out: cute.Tensor,
    mma: cute.TiledMma,
    x_layout: cute.ComposedLayout,
    w_layout: cute.ComposedLayout,
):
    thread, _, _ = cute.arch.thread_idx()
    tile_m, tile_n, _ = cute.arch.block_idx()
    warp = cute.arch.make_warp_uniform(cute.arch.warp_idx())
    smem = memory.SmemAllocator()
    barriers = smem.allocate_array(cutlass.Int64, 2 * STAGES)
    sx = smem.allocate_tensor(out.element_type, x_layout.outer, byte_alignment=1024, swizzle=x_layout.inner)
    sw = smem.allocate_tensor(out.element_type, w_layout.outer, byte_alignment=1024, swizzle=w_layout.inner)
    one = (None, None, 0)
    ring = pipeline.PipelineTmaAsync.create(
        num_stages=STAGES,
        producer_group=pipeline.CooperativeGroup(pipeline.Agent.Thread),
        consumer_group=pipeline.CooperativeGroup(pipeline.Agent.Thread, THREADS // 32),
        tx_count=cute.size_in_bytes(out.element_type, cute.slice_(x_layout, one))
        + cute.size_in_bytes(out.element_type, cute.slice_(w_layout, one)),
        barrier_storage=barriers,
        cta_layout_vmnk=cute.make_layout((1, 1, 1, 1)),
    )
    tile_x = cute.local_tile(gx, (TILE[0], TILE[2]), (tile_m, None))
    tile_w = cute.local_tile(gw, (TILE[1], TILE[2]), (tile_n, None))
    alone = cute.make_layout(1)
    to_x, from_x = cpasync.tma_partition(load_x, 0, alone, cute.group_modes(sx, 0, 2), cute.group_modes(tile_x, 0, 2))
    to_w, from_w = cpasync.tma_partition(load_w, 0, alone, cute.group_modes(sw, 0, 2), cute.group_modes(tile_w, 0, 2))
    mine = mma.get_slice(0)  # of the tile's one warp group: descriptors of shared memory
    a = mma.make_fragment_A(mine.partition_A(sx))
    b = mma.make_fragment_B(mine.partition_B(sw))
    steps = cute.size(tile_x, mode=[2])
    filled = pipeline.make_pipeline_state(pipeline.PipelineUserType.Producer, STAGES)
    used = pipeline.make_pipeline_state(pipeline.PipelineUserType.Consumer, STAGES)
    if warp == 0:
        for _ in cutlass.range(min(STAGES - 1, steps), unroll=1):
            ring.producer_acquire(filled)
            barrier = ring.producer_get_barrier(filled)
            cute.copy(load_x, from_x[(None, filled.count)], to_x[(None, filled.index)], tma_bar_ptr=barrier)
            cute.copy(load_w, from_w[(None, filled.count)], to_w[(None, filled.index)], tma_bar_ptr=barrier)
            ring.producer_commit(filled)
            filled.advance()
    places = cute.local_tile(cute.make_identity_tensor(out.shape), (TILE[0], TILE[1]), (tile_m, tile_n))
    to_out = cute.local_tile(out, (TILE[0], TILE[1]), (tile_m, tile_n))
    lane = mma.get_slice(thread)
    place, target = lane.partition_C(places), lane.partition_C(to_out)
    total = cute.make_rmem_tensor(target.shape, cutlass.Float32)
    total.fill(0.0)
    mma.set(warpgroup.Field.ACCUMULATE, True)
    for _ in cutlass.range(steps, unroll=1):
        ring.consumer_wait(used)
        warpgroup.fence()
        for k in cutlass.range_constexpr(cute.size(a, mode=[2])):
            at = (None, None, k, used.index)
            cute.gemm(mma, total, a[at], b[at], total)
        warpgroup.commit_group()
        warpgroup.wait_group(0)
        ring.consumer_release(used)
        used.advance()
        if warp == 0 and filled.count < steps:
            ring.producer_acquire(filled)
            barrier = ring.producer_get_barrier(filled)
            cute.copy(load_x, from_x[(None, filled.count)], to_x[(None, filled.index)], tma_bar_ptr=barrier)
            cute.copy(load_w, from_w[(None, filled.count)], to_w[(None, filled.index)], tma_bar_ptr=barrier)
            ring.producer_commit(filled)
            filled.advance()
    for i in cutlass.range_constexpr(cute.size(total)):
        if cute.elem_less(place[i], out.shape):
            target[i] = total[i].to(out.element_type)


@cute.jit
def launch_product(x: cute.Tensor, w: cute.Tensor, out: cute.Tensor):
    dtype, k_major = x.element_type, OperandMajorMode.K
    mma = hopper_helpers.make_trivial_tiled_mma(
        dtype, dtype, k_major, k_major, cutlass.Float32, (1, 1, 1), (64, TILE[1])
    )
    rows = hopper_helpers.LayoutEnum.from_tensor(x)
    x_layout = hopper_helpers.make_smem_layout_a(rows, TILE, dtype, STAGES)
    w_layout = hopper_helpers.make_smem_layout_b(rows, TILE, dtype, STAGES)
    one, copy = (None, None, 0), cpasync.CopyBulkTensorTileG2SOp()
    load_x, gx = cpasync.make_tiled_tma_atom(copy, x, cute.slice_(x_layout, one), (TILE[0], TILE[2]))
    load_w, gw = cpasync.make_tiled_tma_atom(copy, w, cute.slice_(w_layout, one), (TILE[1], TILE[2]))
    grid = [cute.ceil_div(out.shape[0], TILE[0]), cute.ceil_div(out.shape[1], TILE[1]), 1]
    product(load_x, gx, load_w, gw, out, mma, x_layout, w_layout).launch(grid=grid, block=[THREADS, 1, 1])


launch = cutedsl.compile(launch_product)


def run(x, w, out):
    launch(x, w, out)
