import cutlass
import cutlass.cute as cute
import cutlass.memory as memory
from kernels_db.runtime import cutedsl

THREADS = 256


@cute.kernel
def rms_norm(x: cute.Tensor, weight: cute.Tensor, y: cute.Tensor, hidden: cutlass.Constexpr, eps: cutlass.Constexpr):
    thread, _, _ = cute.arch.thread_idx()
    row, _, _ = cute.arch.block_idx()
    warp = cute.arch.warp_idx()
    smem = memory.SmemAllocator()
    parts = smem.allocate_tensor(cutlass.Float32, cute.make_layout(THREADS // 32))
    mine = (None, thread)
    steps = cute.size(x, mode=[1])
    total = cutlass.Float32(0.0)
    for step in cutlass.range(thread, steps, THREADS):
        value = x[row, step, None].load().to(cutlass.Float32)
        total += (value * value).reduce(cute.ReductionOp.ADD, init_val=0.0, reduction_profile=0)
    total = cute.arch.warp_reduction_sum(total)
    if cute.arch.lane_idx() == 0:
        parts[warp] = total
    cute.arch.sync_threads()
    total = cutlass.Float32(0.0)
    for i in cutlass.range_constexpr(THREADS // 32):
        total += parts[i]
    scale = cute.math.rsqrt(total / hidden + eps)
    for step in cutlass.range(thread, steps, THREADS):
        value = x[row, step, None].load().to(cutlass.Float32) * scale
        out = value.to(y.element_type).to(cutlass.Float32) * weight[step, None].load().to(cutlass.Float32)
        y[row, step, None].store(out.to(y.element_type))


@cute.jit
def launch_rms_norm(x: cute.Tensor, weight: cute.Tensor, y: cute.Tensor, eps: cutlass.Constexpr):
    rows, hidden = x.shape
    width = 128 // x.element_type.width
    if cutlass.const_expr(hidden % width != 0):
        width = 1
    shape, stride = (rows, hidden // width, width), (hidden, width, 1)
    tiles = cute.make_layout(shape, stride=stride)
    flat = cute.make_layout(shape[1:], stride=stride[1:])
    gx = cute.make_tensor(x.iterator, tiles)
    gw = cute.make_tensor(weight.iterator, flat)
    gy = cute.make_tensor(y.iterator, tiles)
    rms_norm(gx, gw, gy, hidden, eps).launch(grid=[rows, 1, 1], block=[THREADS, 1, 1])


launch = cutedsl.compile(launch_rms_norm)


def run(x, weight, y):
    launch(x, weight, y, 1e-6)
